"""Tiering: which calls run plain or traced, and when what is compiled.

- `policy`: the states, their transitions, and all constants.
- `engine`: the state of a call class. `ledger` bounds the seconds that trials lose; it is apart because each
  process has one, too.
- `call_classes`: classes of calls by their arguments.
- `queue`: the background thread that compiles; apart from the engine of the process for its size.
- `generators`: the choice between traced and plain generators.
- `loop_detector`, `loop_estimates`: loops in byte code; apart because one asks for loops, the other for the
  seconds that they may take.

Nothing heavy is imported: the first calls of a process need this package. What it needs of the tracer and of
the compiler is supplied by `jitla.dispatch.function_state`.
"""
