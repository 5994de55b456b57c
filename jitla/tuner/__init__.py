"""The autotuner: searches schedules of kernels by measurement, tilings of accelerator layers by simulation.

`kernel_search` tunes one kernel: `search` proposes points of its schedule space by the scores of `model`,
`measurement` times them in another process, and `records` stores them. `schedule_store` chooses stored and
pinned schedules when kernels are bound; `background` tunes hot kernels while the program runs; `calibration`
measures the machine of the cost model. It is above `jitla.fusion` and `jitla.recompile`, and used by
`jitla.dispatch.tuning`. The package imports nothing by itself: a measuring process first lowers its priority
by `throttle`.
"""
