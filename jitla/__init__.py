"""jitla: a just-in-time compiler for NumPy programs."""
