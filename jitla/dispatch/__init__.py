"""What a call of a decorated function does: plain, traced or compiled; and its controls."""

from typing import TYPE_CHECKING

from jitla.process.loading import lazy_modules

if TYPE_CHECKING:
    from jitla.dispatch import quantization, tiering, tuning, verify_mode
else:
    __getattr__ = lazy_modules(
        __name__, "jitla.dispatch.quantization", "jitla.dispatch.tiering", "jitla.dispatch.tuning",
        "jitla.dispatch.verify_mode")

__all__ = ["quantization", "tiering", "tuning", "verify_mode"]
