"""The command line, the notebook extension and the demonstration."""
