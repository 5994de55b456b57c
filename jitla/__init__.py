"""jitla: a just-in-time compiler for NumPy programs."""

from jitla import config
from jitla.api import Stats, jit
from jitla.config import configure, options

__all__ = ["Stats", "config", "configure", "jit", "options"]
__version__ = "0.1.0"
