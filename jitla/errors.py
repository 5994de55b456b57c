"""The errors and warnings that users of jitla can see."""

from __future__ import annotations

__all__ = [
    "BackendError",
    "CacheWarning",
    "ConfigError",
    "DeviceError",
    "FallbackWarning",
    "InternalError",
    "JitlaError",
    "JitlaWarning",
    "MemoryLimitWarning",
    "NestError",
    "ScheduleError",
    "TraceError",
    "UnsupportedError",
    "VerificationError",
]


class JitlaError(Exception):
    """Base class of all errors that jitla raises; `code` is the number in docs/errors.md."""

    code = "J100"

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.code}]"


class TraceError(JitlaError, TypeError):
    """The function cannot be traced as asked."""

    code = "J101"


class UnsupportedError(TraceError):
    """``strict=True``, and an operation has no entry in the op table."""

    code = "J102"


class VerificationError(JitlaError, AssertionError):
    """``verify=True``, and a result differs from NumPy's; `plan` is that of the block, if known."""

    code = "J103"
    plan = ""


class ConfigError(JitlaError, ValueError):
    """An option has an unknown name or a value outside its range."""

    code = "J104"


class BackendError(JitlaError, RuntimeError):
    """A backend could not compile or load a kernel."""

    code = "J105"


class DeviceError(JitlaError, RuntimeError):
    """A program for the simulated accelerator uses an operation that the machine does not have."""

    code = "J106"


class NestError(JitlaError, ValueError):
    """A loop nest or its text is invalid; `law` names the violated rule."""

    code = "J108"

    def __init__(self, law: str, text: str) -> None:
        super().__init__(law, text)
        self.law = law

    def __str__(self) -> str:
        return f"{': '.join(self.args)} [{self.code}]"


class ScheduleError(NestError):
    """A schedule primitive would change results, or does not apply; `law` names the reason."""

    code = "J109"


class InternalError(JitlaError, RuntimeError):
    """A broken invariant of jitla; the message names the pass and the rule."""

    code = "J107"


class JitlaWarning(UserWarning):
    """A program works, but not as fast as it could; `code` is the number in docs/errors.md."""

    code = "J200"

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.code}]"


class MemoryLimitWarning(JitlaWarning):
    """No plan of a block stays below ``memory_limit``; the one that needs least memory is run."""

    code = "J202"


class CacheWarning(JitlaWarning):
    """Machine code is not cached on disk: other users could have written it there."""

    code = "J201"


class FallbackWarning(JitlaWarning):
    """An operation fell back to NumPy, and ``fallback="warn"``; one warning for each line."""

    code = "J203"
