"""What a call of a decorated function does: plain, traced or compiled; and its controls.

`decorator` makes the function that replaces a decorated one; its code is in `wrapper_code`, its state in
`function_state`; `control` has what users ask of it. `decorator` and `schedule_pins` are apart because each
is one public function, used by `jitla.api` only.

Loaded on first use, because few programs need them: `block_compilation`, which has blocks compiled, `tuning`,
`quantization` and `verify_mode`.
"""

from typing import TYPE_CHECKING

from jitla.process.loading import lazy_modules

if TYPE_CHECKING:
    from jitla.dispatch import block_compilation, quantization, tuning, verify_mode
else:
    __getattr__ = lazy_modules(
        __name__, "jitla.dispatch.block_compilation", "jitla.dispatch.quantization", "jitla.dispatch.tuning",
        "jitla.dispatch.verify_mode")

__all__ = ["block_compilation", "quantization", "tuning", "verify_mode"]
