"""The errors and warnings a user of jitla can meet."""

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
    """Root of every error that jitla itself raises; `code` is its number in docs/errors.md."""

    code = "J100"

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.code}]"


class TraceError(JitlaError, TypeError):
    """The function cannot be traced as asked."""

    code = "J101"


class UnsupportedError(TraceError):
    """``strict=True`` and an operation has no entry in the op table."""

    code = "J102"


class VerificationError(JitlaError, AssertionError):
    """``verify=True`` and jitla did not compute what NumPy does; `plan` is that of the block, if known."""

    code = "J103"
    plan = ""


class ConfigError(JitlaError, ValueError):
    """An option has an unknown name or a value outside its range."""

    code = "J104"


class BackendError(JitlaError, RuntimeError):
    """A backend could not compile or load a kernel."""

    code = "J105"


class DeviceError(JitlaError, RuntimeError):
    """A program for the simulated accelerator does what its machine cannot do."""

    code = "J106"


class NestError(JitlaError, ValueError):
    """A loop nest, or its text, means nothing; `law` names what it breaks."""

    code = "J108"

    def __init__(self, law: str, text: str) -> None:
        super().__init__(law, text)
        self.law = law

    def __str__(self) -> str:
        return f"{': '.join(self.args)} [{self.code}]"


class ScheduleError(NestError):
    """A change of a loop nest would change what it computes, or does not fit; `law` names why."""

    code = "J109"


class InternalError(JitlaError, RuntimeError):
    """A broken invariant of jitla; the message names the pass and the rule."""

    code = "J107"


class JitlaWarning(UserWarning):
    """Something that works, but not as fast as it could; `code` is its number in docs/errors.md."""

    code = "J200"

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.code}]"


class MemoryLimitWarning(JitlaWarning):
    """No plan of a block stays below ``memory_limit``; the one that takes least memory is run."""

    code = "J202"


class CacheWarning(JitlaWarning):
    """Machine code is not kept on disk: others could have written it there."""

    code = "J201"


class FallbackWarning(JitlaWarning):
    """An operation was handed to NumPy, and ``fallback="warn"`` asks to say so, once for each line."""

    code = "J203"
