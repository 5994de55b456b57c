"""Room tracing."""
