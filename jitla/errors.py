"""The errors and warnings a user of jitla can meet.

Knows: the names, and what the user can do about each. Must not know: any other room.
Receives nothing; every room raises these.
"""

from __future__ import annotations

__all__ = [
    "BackendError",
    "CacheWarning",
    "ConfigError",
    "DeviceError",
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
    """Root of every error that jitla itself raises."""


class TraceError(JitlaError, TypeError):
    """The function cannot be traced as asked."""


class UnsupportedError(TraceError):
    """``strict=True`` and an operation has no entry in the op table."""


class VerificationError(JitlaError, AssertionError):
    """``verify=True`` and jitla did not compute what NumPy does."""


class ConfigError(JitlaError, ValueError):
    """An option has an unknown name or a value outside its range."""


class BackendError(JitlaError, RuntimeError):
    """A backend could not compile or load a kernel."""


class DeviceError(JitlaError, RuntimeError):
    """A program for the simulated accelerator does what its machine cannot do."""


class NestError(JitlaError, ValueError):
    """A loop nest, or its text, means nothing; `law` names what it breaks."""

    def __init__(self, law: str, text: str) -> None:
        super().__init__(law, text)
        self.law = law

    def __str__(self) -> str:
        return ": ".join(self.args)


class ScheduleError(NestError):
    """A change of a loop nest would change what it computes, or does not fit; `law` names why."""


class InternalError(JitlaError, RuntimeError):
    """A broken invariant of jitla; the message names the pass and the rule."""


class JitlaWarning(UserWarning):
    """Something that works, but not as fast as it could."""


class MemoryLimitWarning(JitlaWarning):
    """No plan of a block stays below ``memory_limit``; the one that takes least memory is run."""


class CacheWarning(JitlaWarning):
    """Machine code is not kept on disk: others could have written it there."""
