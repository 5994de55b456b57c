"""jitla: a just-in-time compiler for NumPy programs."""

from jitla import config
from jitla.account import Stats
from jitla.api import coverage, explain, jit
from jitla.config import configure, options
from jitla.explain import Explanation

__all__ = [
    "Explanation", "Stats", "config", "configure", "coverage", "explain", "jit", "options",
]
__version__ = "0.1.0"
