"""jitla: a just-in-time compiler for NumPy programs."""

from jitla import config
from jitla.api import (
    calibrate,
    coverage,
    explain,
    jit,
    recompilation,
    recompilations,
    sparsify,
    spec,
)
from jitla.config import configure, options
from jitla.errors import (
    BackendError,
    ConfigError,
    InternalError,
    JitlaError,
    JitlaWarning,
    MemoryLimitWarning,
    TraceError,
    UnsupportedError,
    VerificationError,
)

__all__ = [
    "BackendError", "ConfigError", "InternalError", "JitlaError", "JitlaWarning", "MemoryLimitWarning",
    "TraceError", "UnsupportedError", "VerificationError", "calibrate", "config", "configure", "coverage",
    "explain", "jit", "options", "recompilation", "recompilations", "sparsify", "spec",
]
__version__ = "0.1.0"
