"""Room rewrites."""
