"""jitla: a just-in-time compiler for NumPy programs."""

from jitla import config
from jitla.api import (
    calibrate,
    coverage,
    explain,
    jit,
    quantize,
    recompilation,
    recompilations,
    schedule,
    sparsify,
    spec,
    tune,
)
from jitla.cli.notebook import load_ipython_extension
from jitla.config import __version__ as __version__
from jitla.config import configure, options
from jitla.errors import (
    BackendError,
    CacheWarning,
    ConfigError,
    DeviceError,
    FallbackWarning,
    InternalError,
    JitlaError,
    JitlaWarning,
    MemoryLimitWarning,
    NestError,
    ScheduleError,
    TraceError,
    UnsupportedError,
    VerificationError,
)

__all__ = [
    "BackendError", "CacheWarning", "ConfigError", "DeviceError", "FallbackWarning", "InternalError",
    "JitlaError", "JitlaWarning", "MemoryLimitWarning", "NestError", "ScheduleError", "TraceError",
    "UnsupportedError", "VerificationError", "calibrate", "config", "configure", "coverage", "explain", "jit",
    "load_ipython_extension", "options", "quantize", "recompilation", "recompilations", "schedule",
    "sparsify", "spec", "tune",
]
