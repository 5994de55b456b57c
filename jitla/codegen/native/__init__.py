"""The native run time, written as LLVM text: `loader` compiles it and has the text of the launcher.

`pool`, `memory` and `tape` have the text of the thread pool, the allocator and the tape's methods. Only
`loader` uses them; they are apart for their size. `loop_entry` enters loop programs, with its text also in
`loop_operands` and `loop_results`. `symbols` are the functions that native code calls.
"""
