"""Room recompile."""
