"""A module run plain and decorated, several calls in a row, and what differs.

Receives source text and a mode; returns the first difference. Nothing of jitla is imported for a plain run.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import io
import linecache
import signal
import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.call_fuzz.observe import ADDRESS, Seen, Snapshot, lines_of

MODES = ("sync", "background", "auto")
CALLS = 4
# NumPy's own state; where it speaks of underflow, too, nothing is traced.
AS_USUAL: Any = {"divide": "warn", "over": "warn", "invalid": "warn", "under": "ignore"}
UNSEEN = ("jit", "OUT", "LOCK", "SHOWN")


class Difference(NamedTuple):
    """The first thing that is not as it is plain: in which call, what kind of thing, where, both texts."""

    mode: str
    call: int
    kind: str
    path: str
    plain: str
    found: str

    def __str__(self) -> str:
        return (f"{self.mode}, call {self.call}, {self.kind}: {self.path}\n"
                f"    plain: {self.plain}\n    found: {self.found}")


class Call(NamedTuple):
    """What one call of a module left."""

    leaves: Seen
    warned: list[tuple[str, str]]


class Run(NamedTuple):
    """All calls of a module, and the failures that jitla noted and masked."""

    calls: list[Call]
    failures: list[str]


def plain(function: Any = None, **options: Any) -> Any:
    """Stand for a decorator that does nothing."""
    return (lambda f: f) if function is None else function


def decorator(mode: str) -> Callable[..., Any]:
    """Return the decorator under test."""
    import jitla

    decorated: list[Any] = []

    def jit(function: Any = None) -> Any:
        made = jitla.jit(function, compile=mode)
        decorated.append(made)
        return made

    vars(jit)["decorated"] = decorated
    return jit


def load(path: Path, jit: Callable[..., Any]) -> types.ModuleType:
    """Import the module in a file anew, with `jit` among its names."""
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module)["jit"] = jit
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def perform(path: Path, jit: Callable[..., Any], calls: int = CALLS) -> Run:
    """Import a module and call its `main` some times; what that leaves is noted after each call."""
    kept = dict(sys.modules), np.geterr(), np.geterrcall(), signal.getsignal(signal.SIGUSR1)
    found = []
    # When cycles are collected follows from what is allocated, which differs.
    gc.disable()
    gc.freeze()
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            try:
                module = load(path, jit)
            except Exception as error:
                found.append(_failed(error, path))
            else:
                for n in range(calls):
                    found.append(_call(module, path, n))
    finally:
        sys.modules.pop(path.stem, None)
        np.seterr(**kept[1])
        np.seterrcall(kept[2])
        signal.signal(signal.SIGUSR1, kept[3])
        gc.collect()  # of this program; what is left will not be looked at again
    return Run(found, _failures(jit))


def _call(module: types.ModuleType, path: Path, n: int) -> Call:
    error: BaseException | None = None
    result = None
    with warnings.catch_warnings(record=True) as warned, np.errstate(**AS_USUAL):
        warnings.simplefilter("always")
        try:
            result = module.main(n)
        except Exception as raised:
            error = raised
    shot = Snapshot(module.__name__)
    shot.walk("result", result)
    if error is not None:
        shot.walk("raised", error)
        shot.leaves["raised at"] = repr(lines_of(error, str(path)))
    out = getattr(module, "OUT", None)
    shot.leaves["printed"] = ADDRESS.sub("0x", out.getvalue() if out else "")
    for name, value in list(vars(module).items()):
        if not (name.startswith("__") or name in UNSEEN or isinstance(value, types.ModuleType)):
            shot.walk(name, value)
    said = sorted((w.category.__name__, ADDRESS.sub("0x", str(w.message))) for w in warned)
    return Call(shot.finish(), said)


def _failed(error: Exception, path: Path) -> Call:
    shot = Snapshot(path.stem)
    shot.walk("raised", error)
    shot.leaves["raised at"] = repr(lines_of(error, str(path)))
    return Call(shot.finish(), [])


def _failures(jit: Callable[..., Any]) -> list[str]:
    found = []
    for function in getattr(jit, "decorated", []):
        state = getattr(getattr(function, "__func__", function), "__jitla_state__", None)
        if state is not None:
            for site in state.all_sites():
                found += site.failures
    return found


def first_difference(mode: str, expected: Run, actual: Run) -> Difference | None:
    """Return what differs first; None if nothing does."""
    for n, (one, other) in enumerate(zip(expected.calls, actual.calls, strict=False)):
        differing = {path: (one.leaves.get(path, "absent"), other.leaves.get(path, "absent"))
                     for path in [*one.leaves, *[p for p in other.leaves if p not in one.leaves]]
                     if one.leaves.get(path) != other.leaves.get(path)}
        if differing:
            path = min(differing, key=lambda p: _rank(p, differing[p]))
            return Difference(mode, n, kind_of(path, *differing[path]), path, *differing[path])
        if not _may_warn(one.warned, other.warned):
            return Difference(mode, n, "warnings", "", repr(one.warned), repr(other.warned))
    if actual.failures:
        return Difference(mode, -1, "internal", "failures", "none", actual.failures[0][:300])
    return None


def _may_warn(plain: list[tuple[str, str]], found: list[tuple[str, str]]) -> bool:
    """Say whether no warning was added, and only those of floating-point flags left out.

    Values that nobody reads are not computed and do not warn (`docs/differences.md`).
    """
    left = Counter(plain)
    left.subtract(found)
    return all(n == 0 or n > 0 and " encountered in " in text for (_, text), n in left.items())


def _rank(path: str, texts: tuple[str, str]) -> int:
    """Order differences by how much they say: leaks, then exceptions, then anything else."""
    if "LEAK" in texts[1]:
        return 0
    return 1 if path.startswith("raised") else 2


def kind_of(path: str, plain: str, found: str) -> str:
    """Return a word for a difference."""
    if "LEAK" in found:
        return "leak"
    if path.startswith("raised"):
        return "line" if path == "raised at" else "raised"
    if path.startswith("LOG"):
        return "event" if "absent" in (plain, found) or not path.count("[") > 1 else "logged value"
    if path.endswith(" shares") or "same as" in plain + found:
        return "identity"
    return "value"


def compare(
    source: str, name: str, folder: Path, modes: tuple[str, ...] = MODES, calls: int = CALLS,
) -> list[Difference]:
    """Write a module, run it plain and in each mode; return the first difference of each mode."""
    path = folder / f"{name}.py"
    path.write_text(source)
    try:
        expected = perform(path, plain, calls)
        found = []
        for mode in modes:
            linecache.checkcache(str(path))
            one = first_difference(mode, expected, perform(path, decorator(mode), calls))
            if one is not None:
                found.append(one)
        return found
    finally:
        path.unlink(missing_ok=True)
        linecache.cache.pop(str(path), None)
