"""Two outcomes of one call, compared in everything a user can see."""

from __future__ import annotations

import re
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import scipy.sparse as sp

from tests.fuzz.arrays import Box
from tests.fuzz.matrices import parts

MUTABLE = (np.ndarray, list, dict, Box, sp.sparray, sp.spmatrix)
SIMPLE = frozenset((np.ndarray, float, int, bool, str, type(None), np.float64, np.float32))
MOST_RELATED = 60
# Arrays that a sparse matrix is made of.
PART = re.compile(r"\.(data|indices|indptr|offsets|coords\[\d\])$")
# CPython names the class of a method that takes no keywords where it calls it directly, not through its name.
OWNER = re.compile(r"\b\w+\.(?=\w+\(\) takes no keyword arguments)")
SLOW = sp.SparseEfficiencyWarning.__name__
FLAGS = ("writeable", "owndata", "c_contiguous", "f_contiguous", "aligned")
# So many bytes has a temporary that NumPy's operators write into, whatever its order.
REUSED = 1 << 18


@dataclass
class Outcome:
    """What one call did: its result or exception, and all it could have changed."""

    result: Any = None
    error: BaseException | None = None
    line: int = 0
    reached: Any = None
    undefined: bool = False
    warned: list[warnings.WarningMessage] = field(default_factory=list)
    heard: bool = True  # whether warnings were listened to
    leaves: list[tuple[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Fault:
    """One difference."""

    kind: str
    path: str
    plain: str
    jitted: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.path}: plain {self.plain}, jitted {self.jitted}"


def outcome(
    function: Callable[..., Any], arguments: tuple[Any, ...], state: Callable[[], Any], filename: str
) -> Outcome:
    """Call a function and keep what can be seen of it."""
    found = Outcome()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        perform(found, function, arguments, filename)
    found.warned = caught
    found.undefined = any("invalid value encountered in cast" in str(w.message) for w in caught)
    look(found, arguments, state)
    return found


def perform(
    found: Outcome, function: Callable[..., Any], arguments: tuple[Any, ...], filename: str
) -> None:
    """Call a function; keep its result or exception."""
    try:
        found.result = function(*arguments)
    except Exception as error:
        found.error = error
        found.line = innermost(error.__traceback__, filename)


def look(found: Outcome, arguments: tuple[Any, ...], state: Callable[[], Any]) -> None:
    """Keep all that a call could have changed."""
    found.reached = (list(arguments), state())
    found.leaves = [
        *leaves(found.result, "result"),
        *leaves(found.reached[0], "argument"),
        *leaves(found.reached[1], "state"),
    ]


def innermost(trace: TracebackType | None, filename: str) -> int:
    """Return the last line of `filename` in a traceback."""
    line = 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno or 0
        trace = trace.tb_next
    return line


def leaves(held: Any, path: str) -> list[tuple[str, Any]]:
    """Return what a result is made of, containers included, in a fixed order."""
    found = [(path, held)]
    if type(held) in SIMPLE:
        return found
    if isinstance(held, (tuple, list)):
        for i, item in enumerate(held):
            found += leaves(item, f"{path}[{i}]")
    elif isinstance(held, np.ma.MaskedArray):
        found.append((f"{path}.mask", np.ma.getmaskarray(held)))
    elif isinstance(held, dict):
        for key, item in held.items():
            found += leaves(item, f"{path}[{key!r}]")
    elif sp.issparse(held):
        found += [(f"{path}.{name}", part) for name, part in parts(held)]
    elif isinstance(held, Box):
        for key, item in vars(held).items():
            found += leaves(item, f"{path}.{key}")
    return found


def compare(plain: Outcome, jitted: Outcome) -> list[Fault]:
    """Return every difference, the one to read first first."""
    faults = compare_errors(plain, jitted)
    if [p for p, _ in plain.leaves] != [p for p, _ in jitted.leaves]:
        return [
            *faults,
            Fault(
                "structure",
                "leaves",
                str([p for p, _ in plain.leaves])[:200],
                str([p for p, _ in jitted.leaves])[:200],
            ),
        ]
    for (path, a), (_, b) in zip(plain.leaves, jitted.leaves, strict=True):
        faults += compare_leaf(path, a, b)
    if not faults:
        faults += compare_aliases(plain.leaves, jitted.leaves)
    return faults


def compare_warnings(plain: Outcome, jitted: Outcome) -> list[Fault]:
    """Say what warns that does not plain; values that nobody reads do not warn, as is documented.

    What SciPy says of slow ways to do something, it says in both. What it says of sums of duplicates, which
    it makes before it adds up all entries, may be said of the sum of all, as is documented, too.
    """
    if not jitted.heard or not jitted.warned and not plain.warned:
        return []
    mine, theirs = (Counter((w.category.__name__, str(w.message)) for w in o.warned) for o in (plain, jitted))
    silent = mine - theirs
    sums = Counter({(name, text[:-2]): n for (name, text), n in silent.items() if text.endswith("reduceat")})
    if not theirs - mine - sums and all(name != SLOW for name, _ in silent):
        return []
    return [Fault("warnings", "call", str(dict(mine)), str(dict(theirs)))]


def compare_errors(plain: Outcome, jitted: Outcome) -> list[Fault]:
    """Compare whether and what was raised, and at which line of the user."""
    if type(plain.error) is not type(jitted.error):
        return [Fault("outcome", "call", describe_error(plain), describe_error(jitted))]
    if plain.error is None:
        return []
    if str(plain.error) != str(jitted.error):
        return [Fault("text", "call", describe_error(plain), describe_error(jitted))]
    # CPython 3.11 itself names the line before for some unbound names (fused instructions).
    if plain.line != jitted.line and not isinstance(plain.error, UnboundLocalError):
        return [Fault("line", "call", str(plain.line), str(jitted.line))]
    return []


def describe_error(found: Outcome) -> str:
    """Return the exception with its innermost frame, or that there is none."""
    if found.error is None:
        return "no exception"
    last = traceback.extract_tb(found.error.__traceback__)[-1:]
    where = f" ({last[0].filename.rpartition('/')[2]}:{last[0].lineno})" if last else ""
    return f"{type(found.error).__name__}: {found.error} [line {found.line}]{where}"


def compare_leaf(path: str, a: Any, b: Any) -> list[Fault]:
    """Compare two leaves by type, dtype, shape, strides, flags and values."""
    if type(a) is float is type(b) and a.hex() == b.hex():
        return []
    if type(a) is not type(b) and type(a).__qualname__ != type(b).__qualname__:
        return [Fault("type", path, type(a).__name__, type(b).__name__)]
    if isinstance(a, np.ndarray):
        return _compare_arrays(path, a, b)
    if isinstance(a, (np.generic, float, complex, int, str, bytes, type(None))):
        if isinstance(a, np.generic) and (a.dtype != b.dtype or a.dtype.char != b.dtype.char):
            return [Fault("dtype", path, repr(a.dtype), repr(b.dtype))]
        exact = isinstance(a, int) or not isinstance(a, (np.generic, float, complex))
        if isinstance(a, str):
            a, b = (OWNER.sub("", text) for text in (a, b))
        same = a == b if exact else alike(np.asarray(a), np.asarray(b))
        return [] if same else [Fault("value", path, repr(a), repr(b))]
    if isinstance(a, (tuple, list, dict, Box)):
        return []
    said, other = _said(a), _said(b)
    return [Fault("value", path, said, other)] if " at 0x" not in said and said != other else []


def _said(held: Any) -> str:
    """Return how something shows itself; a matrix into which a program stored nonsense may not."""
    try:
        return repr(held)
    except Exception as error:
        return f"{type(held).__qualname__} that says {error!r}"


def _compare_arrays(path: str, a: np.ndarray, b: np.ndarray) -> list[Fault]:
    for name in ("dtype", "shape"):
        if getattr(a, name) != getattr(b, name):
            return [Fault(name, path, str(getattr(a, name)), str(getattr(b, name)))]
    if a.dtype.char != b.dtype.char:
        return [Fault("dtype", path, f"char {a.dtype.char}", b.dtype.char)]
    reused = a.nbytes >= REUSED and a.ndim > 1 and b.flags.c_contiguous
    if a.strides != b.strides and strides(a) != strides(b) and not reused:
        return [Fault("strides", path, str(a.strides), str(b.strides))]
    for name in _flags(path) if a.flags.num != b.flags.num and not reused else ():
        if getattr(a.flags, name) != getattr(b.flags, name):
            return [Fault("flags", path, f"{name}={getattr(a.flags, name)}", f"{getattr(b.flags, name)}")]
    data, other = np.asarray(a), np.asarray(b)
    if alike(data, other):
        return []
    same = equal(data, other)
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return [Fault("value", f"{path}{list(at)}", f"{a[at]!r} ({(~same).sum()} of {a.size})", repr(b[at]))]


def _flags(path: str) -> tuple[str, ...]:
    """Return the flags that are compared: SciPy's parts own their memory, or not, as their length falls."""
    return tuple(name for name in FLAGS if name != "owndata" or not PART.search(path))


def alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Say whether all of two arrays is the same: their bytes, as a rule."""
    if not a.dtype.hasobject and a.tobytes() == b.tobytes():
        return True
    return bool(equal(a, b).all())


def strides(a: np.ndarray) -> tuple[int, ...]:
    """Return the strides that mean anything."""
    return tuple(s for s, d in zip(a.strides, a.shape, strict=True) if d > 1) if a.size else ()


def equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Say where two arrays have the same bits, or NaN both."""
    kind = a.dtype.kind
    if kind == "f":
        with np.errstate(all="ignore"):
            return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    if kind == "c":
        return equal(np.real(a), np.real(b)) & equal(np.imag(a), np.imag(b))
    if kind in "mM":
        return (a == b) | (np.isnat(a) & np.isnat(b))
    if kind == "O":
        return np.reshape([_alike(x, y) for x, y in zip(a.flat, b.flat, strict=True)], a.shape).astype(bool)
    if a.dtype.names:
        return np.logical_and.reduce([
            equal(a[k], b[k]).all(axis=tuple(range(a.ndim, a[k].ndim))) for k in a.dtype.names])
    return np.asarray(a == b)


def _alike(x: Any, y: Any) -> bool:
    """Compare two elements of arrays of objects."""
    return x is y or type(x).__qualname__ == type(y).__qualname__ and repr(x) == repr(y)


def compare_aliases(plain: list[tuple[str, Any]], jitted: list[tuple[str, Any]]) -> list[Fault]:
    """Compare which leaves are one object and which share memory."""
    mine, theirs = relations(x for _, x in plain), relations(x for _, x in jitted)
    for pair in sorted(set(mine) | set(theirs)):
        if mine.get(pair) != theirs.get(pair):
            paths = f"{plain[pair[0]][0]} ~ {plain[pair[1]][0]}"
            if pair in mine and pair in theirs and PART.search(paths):
                continue  # whether SciPy makes a view of an array that it shares
            return [Fault("alias", paths, mine.get(pair, "apart"), theirs.get(pair, "apart"))]
    return []


def _place(a: np.ndarray) -> tuple[int, int]:
    """Return where an array is in memory, from its first byte to behind its last."""
    if a.flags.c_contiguous or a.flags.f_contiguous:
        start = a.__array_interface__["data"][0]
        return start, start + a.nbytes
    return np.lib.array_utils.byte_bounds(a)


def relations(held: Iterable[Any]) -> dict[tuple[int, int], str]:
    """Return which mutable leaves are the same or overlap."""
    mutable = [(i, x) for i, x in enumerate(held) if isinstance(x, MUTABLE)][:MOST_RELATED]
    places = sorted((*_place(x), i) for i, x in mutable if isinstance(x, np.ndarray) and x.size)
    found = {}
    for at, (_, end, i) in enumerate(places):
        for start, _, j in places[at + 1 :]:
            if start >= end:
                break
            found[min(i, j), max(i, j)] = "overlap"
    known: dict[int, list[int]] = {}
    for j, x in mutable:
        before = known.setdefault(id(x), [])
        found.update({(i, j): "same" for i in before})
        before.append(j)
    return found
