"""Makes callables of a row: one for NumPy, one for jitla, one for each peer that is installed."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from types import ModuleType
from typing import Any

import numba
import numpy as np

import jitla
from bench.peers.row import Array, Row, results_of

Call = Callable[[], object]
PATIENCE = 100  # calls until loops over slices are compiled


def module(name: str) -> ModuleType | None:
    """The module of a peer, if it is there."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def by_numpy(row: Row, given: Sequence[Any]) -> Call | None:
    return lambda: row.plain(*given)


def by_jitla(row: Row, given: Sequence[Any]) -> Call | None:
    fast = jitla.jit(row.plain, compile="sync")
    for _ in range(PATIENCE):  # loops over slices are compiled while Python runs them
        fast(*[each.copy() if isinstance(each, np.ndarray) else each for each in given])
        if not (found := fast.stats()).loops_waiting + found.loops_cold:
            break
        sleep(0.2)
    return lambda: fast(*given)


def by_blocks(row: Row, given: Sequence[Any]) -> Call | None:
    function = row.blocked
    return function and (lambda: function(*given))


def by_numexpr(row: Row, given: Sequence[Any]) -> Call | None:
    """Expressions find their variables by name."""
    peer, wanted = module("numexpr"), row.numexpr
    if peer is None or wanted is None:
        return None
    if callable(wanted):
        return lambda: wanted(peer, *given)
    names = dict(zip(inspect.signature(row.plain).parameters, given, strict=True))
    if isinstance(wanted, str):
        return lambda: peer.evaluate(wanted, names, {})
    return lambda: tuple([peer.evaluate(w, names, {}) for w in wanted])


def by_numba(row: Row, given: Sequence[Any]) -> Call | None:
    if row.numba is None:
        return None
    compiled = numba.njit(parallel=True, fastmath=True)(row.numba)
    return lambda: compiled(*given)


def by_jax(row: Row, given: Sequence[Any]) -> Call | None:
    """Arrays are put where JAX wants them before, and waited for after."""
    peer, function = module("jax"), row.jax or row.array
    if peer is None or function is None:
        return None
    peer.config.update("jax_enable_x64", True)
    numpy = importlib.import_module("jax.numpy")
    importlib.import_module("jax.scipy.special")
    first = peer if row.jax else numpy
    compiled = peer.jit(lambda *arguments: function(first, *arguments))
    own = [numpy.asarray(a) if isinstance(a, Array) else a for a in given]
    return lambda: peer.block_until_ready(compiled(*own))


def by_torch(row: Row, given: Sequence[Any]) -> Call | None:
    """Tensors share the memory of the arrays."""
    peer, function = module("torch"), row.torch or row.array
    if peer is None or function is None:
        return None
    peer.compiler.reset()  # it compiles a line of code, which is this one, only so many times
    compiled = peer.compile(lambda *arguments: function(peer, *arguments), dynamic=False)
    own = [peer.from_numpy(a) if isinstance(a, Array) else a for a in given]
    if row.torch_steps == 1:
        return lambda: compiled(*own)

    def steps() -> None:
        for _ in range(row.torch_steps):
            compiled(*own)
    return steps


def by_halide(row: Row, given: Sequence[Any]) -> Call | None:
    """The row's function makes a pipeline, which is run on buffers."""
    peer = module("halide")
    if peer is None or row.halide is None:
        return None
    return row.halide(peer, *given)


class _Scheduling:
    """The module of Halide, for pipelines that it schedules itself."""

    schedules_itself = True

    def __init__(self, peer: Any) -> None:
        self._peer = peer
        peer.load_plugin(str(Path(str(peer.__file__)).parent / "lib64" / "libautoschedule_adams2019.so"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._peer, name)


def by_halide_itself(row: Row, given: Sequence[Any]) -> Call | None:
    """The same pipeline as Halide's own search schedules it (Adams2019)."""
    peer = module("halide")
    return None if peer is None or row.halide is None else row.halide(_Scheduling(peer), *given)


MAKERS: dict[str, Callable[[Row, Sequence[Any]], Call | None]] = {
    "numpy": by_numpy, "blocks": by_blocks, "numexpr": by_numexpr, "numba": by_numba,
    "jax": by_jax, "torch": by_torch, "halide": by_halide, "halide-auto": by_halide_itself, "jitla": by_jitla,
}


@dataclass(frozen=True)
class Contestant:
    """A call, and the arguments it has to itself."""

    call: Call
    given: Sequence[Any]

    def results(self, row: Row) -> list[Array]:
        """Call once; what it returned, or wrote."""
        returned = self.call()
        if returned is None:
            assert row.writes is not None
            returned = self.given[row.writes]
        return results_of(returned)


def enter(name: str, row: Row, arguments: Sequence[Any]) -> Contestant | None:
    """The contestant `name` in `row`, with its own copy of what is written into."""
    given = [a.copy() if k == row.writes else a for k, a in enumerate(arguments)]
    call = MAKERS[name](row, given)
    return call and Contestant(call, given)
