"""Profiles of plain calls: decides which calls are worth tracing before any heavy module is imported.

- `call_classes`: classes of calls by their arguments, with time spent, and estimates of short calls.
- `loop_detector`: detection of loops over elements in byte code.
- `step_times`: the choice between traced and plain generators.

Tracing uses the same call classes, so this package is below it; `jitla.tracing.profile` decides from
profiles of traced calls.
"""
