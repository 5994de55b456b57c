"""Arrays that begin as pending values: what constructors return is an entry of the open tape.

A decorated function is given its new arrays as proxies of memory. Here each of them is computed
by a block that is still open, so that whatever happens to it first has to close that block.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.tracing.callees import (
    CreationCall,
    ForeignCall,
)
from jitla.tracing.lazy import LazyArray

# References to a new proxy: the parameter, the argument of getrefcount; and one more in its caller.
_NEW_PROXY = 3
# References to the memory of a new array: its proxy, the local name, the argument of getrefcount.
_NEW = 3
_RANDOM = (np.random.Generator, np.random.RandomState)


def start_pending() -> None:
    """From now on new arrays in twins begin as pending values."""
    CreationCall.__call__ = _creating(CreationCall.__call__)  # type: ignore[method-assign]
    ForeignCall.__call__ = _drawing(ForeignCall.__call__)  # type: ignore[method-assign]


def _creating(call: Callable[..., Any]) -> Callable[..., Any]:
    def creator(self: CreationCall, *args: Any, **kwargs: Any) -> Any:
        return begun(self.session, call(self, *args, **kwargs))

    return creator


def _drawing(call: Callable[..., Any]) -> Callable[..., Any]:
    def foreign(self: ForeignCall, *args: Any, **kwargs: Any) -> Any:
        made = call(self, *args, **kwargs)
        owner = getattr(self.function, "__self__", None)
        return begun(self.session, made) if isinstance(owner, _RANDOM) else made

    return foreign


def begun(session: Any, made: Any) -> Any:
    """Return a pending copy of the new array behind the proxy `made`; anything else unchanged."""
    if type(made) is not LazyArray or made._v is None or made.ndim == 0:
        return made
    memory = made._v
    packed = memory.flags.c_contiguous or memory.flags.f_contiguous
    if memory.base is not None or not memory.flags.owndata or not memory.flags.writeable \
            or not packed or sys.getrefcount(memory) > _NEW \
            or sys.getrefcount(made) > _NEW_PROXY:
        return made
    return session.recorder.record("cast", (made,), (("dtype", memory.dtype),))
