"""The autotuner: searches schedules of kernels by measurement, tilings of accelerator layers by simulation.

`kernel_search` tunes one kernel: `search` proposes points of its schedule space by the scores of `model`,
`measurement` times them in another process, and `records` stores them, and chooses stored and pinned
schedules when kernels are bound; `background` tunes hot kernels while the program runs; `calibration`
measures the machine of the cost model. It is above `jitla.fusion` and `jitla.recompile`, and used by
`jitla.dispatch.tuning`.

The package loads its files on first use, and they are apart where they are loaded apart: a measuring process
first lowers its priority by `throttle`, before it imports anything else; `lightgbm_model` imports an optional
dependency, `accel_layers` the accelerator.
"""

from typing import TYPE_CHECKING

from jitla.process.loading import lazy_modules

if TYPE_CHECKING:
    from jitla.tuner import accel_layers, background, calibration, lightgbm_model, records
else:
    __getattr__ = lazy_modules(
        __name__, "jitla.tuner.accel_layers", "jitla.tuner.background", "jitla.tuner.calibration",
        "jitla.tuner.lightgbm_model", "jitla.tuner.records")

__all__ = ["accel_layers", "background", "calibration", "lightgbm_model", "records"]
