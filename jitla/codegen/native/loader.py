"""Compiles and loads the native run time, once a process: launcher, thread pool, allocator, tape methods."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from jitla.codegen.native.launch import launch_ir
from jitla.codegen.native.memory import (
    COUNTERS,
    LARGE,
    empty_ir,
    memory_ir,
)
from jitla.codegen.native.pool import (
    MAX_WORKERS,
    PARALLEL,
    SETTINGS,
    pool_ir,
)
from jitla.codegen.native.symbols import (
    fill_table,
    references,
    table_ir,
)
from jitla.codegen.native.tape import (
    FIELDS,
    METHODS,
    array_map_ir,
    tape_ir,
)
from jitla.runtime import install_native, native_launch

__all__ = ["SYMBOLS", "load_native", "native_ir"]

#: What the loaded code defines.
SYMBOLS = (
    "jitla_host", "jitla_launch", "jitla_starter", "jitla_pool", "jitla_worker",
    "jitla_claim", "jitla_release", "jitla_rouse", "jitla_forked", "jitla_spin", "jitla_memory",
    "jitla_handler", "jitla_capsule", "jitla_capsule_name", "jitla_empty", "jitla_hold",
    "jitla_find", "jitla_remember", "jitla_forget", "jitla_drop", "jitla_trim", "jitla_malloc",
    "jitla_calloc", "jitla_realloc", "jitla_free", "jitla_tape", "jitla_share",
    *(f"jitla_{name}" for name in METHODS),
)


class _Loaded(Protocol):
    @property
    def addresses(self) -> Mapping[str, int]: ...


def native_ir() -> str:
    """IR of pool, memory handler, `empty` and launch entry; no address of this process is in it."""
    names = references()
    return (table_ir() + pool_ir(names) + memory_ir(names) + empty_ir(names, LARGE)
            + array_map_ir(names) + tape_ir(names) + launch_ir(names))


def load_native(
    load: Callable[[Callable[[], str], tuple[str, ...], tuple[Any, ...]], _Loaded], prefix: str = ""
) -> Callable[..., int]:
    """Load the run time with `load(text, symbols, words)`, connect it to this process; `launch`.

    `prefix` is put before the text (the module's target). Later calls give the same `launch`.
    """
    launch = native_launch()
    if launch is None:
        loaded = load(lambda: prefix + native_ir(), SYMBOLS, ("native", prefix))
        # arrays made by the handler call it until the very end of the process: the code, and the
        # loader that owns it, must never go
        for owner in (load, loaded):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
        fill_table(loaded.addresses["jitla_host"])
        launch = install_native(loaded.addresses, _layout())
    return launch


def _layout() -> dict[str, Any]:
    return {"settings": SETTINGS, "workers": MAX_WORKERS, "parallel": PARALLEL,
            "counters": COUNTERS, "methods": (METHODS, FIELDS)}
