"""``verify=True``: runs every block and the whole call by jitla and by NumPy, and compares the results."""

from __future__ import annotations

import linecache
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from jitla.config import options
from jitla.errors import JitlaWarning, VerificationError
from jitla.hops import FlagsRaised, evaluate
from jitla.introspection import hide_module

__all__ = ["Checks", "Divergence", "checked_call", "divergences"]

# Relative to the value, and to the largest value of its array: roundings of sums cancel.
TOLERANCE = {"f": 1e-4, "d": 1e-9, "F": 1e-4, "D": 1e-9}


class Divergence(NamedTuple):
    """One difference: `where` it is, `what` jitla has, `wanted` by NumPy."""

    where: str
    what: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.where} is {self.what}, NumPy has {self.wanted}"


class Checks:
    """What one site has to compare with, and the first divergence found in a block."""

    def __init__(self, exact: bool) -> None:
        self.exact = exact
        self.found: str | None = None
        self.plan = ""

    def note(self, line: tuple[str, int] | None, name: str, program: Any,
             divergence: Divergence) -> None:
        """Keep the first divergence of a block, with the user's line and the plan."""
        if self.found is None:
            self.found = f"{_location(line)}: {name}{divergence}{_source_line(line)}"
            self.plan = program.text()

    def bound(self, bound: Any, request: Any) -> Any:
        """Return a bound program that also runs `request` in NumPy and compares."""
        return _CheckedBound(self, bound, request)


class _CheckedBound:
    """A bound program beside the hops it was made of."""

    frozen = False

    def __init__(self, checks: Checks, bound: Any, request: Any) -> None:
        self.checks = checks
        self.of = bound
        self.request = request

    @property
    def program(self) -> Any:
        return self.of.program

    @property
    def count(self) -> int:
        made: int = self.of.count
        return made

    def run(self, leaves: list[Any]) -> tuple[Any, ...]:
        """Run both; where they differ, note it and go on with NumPy's values."""
        request = self.request
        with np.errstate(all="ignore"):
            wanted = [_snapshot(v) for v in evaluate(request.roots, leaves)]
        raised = None
        try:
            made = list(self.of.run(leaves))
        except FlagsRaised as hit:
            made, raised = list(hit.values), hit
        for i, value in enumerate(wanted):
            found = next(divergences(made[i], value, self.checks.exact), None)
            if found is None:
                continue
            self.checks.note(request.lines[i], request.roots[i].op.name, self.program, found)
            if request.outs[i] is None:
                made[i] = value
            else:
                made[i][...] = value
        if raised is not None:
            raise FlagsRaised(tuple(made), raised.flags, raised.saved, raised.exact)
        return tuple(made)


def _location(line: tuple[str, int] | None) -> str:
    return "{}:{}".format(*line) if line else "line not known"


def _source_line(line: tuple[str, int] | None) -> str:
    """Return a line of the user's as one below what is said of it."""
    text = linecache.getline(*line).strip() if line else ""
    return f"\n    {text}" if text else ""


def _snapshot(value: Any) -> Any:
    return value.copy("K") if isinstance(value, np.ndarray) else value


def checked_call(checks: Checks, name: str, plain: Callable[..., Any], traced: Callable[..., Any],
                 args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `plain` on copies, then `traced` on the arguments; raise if they do not do the same.

    Returns
    -------
    object
        What `traced` returns; what it raises is raised.

    Raises
    ------
    VerificationError
        If a block, the results, an exception, or the arguments afterwards differ.
    """
    copies = _copies(name, (args, kwargs))
    expected = None
    if copies is not None:
        with _same_draws(), options(compile="off"):
            expected = _outcome(plain, *copies)
    checks.found = None
    result, error = _outcome(traced, args, kwargs)
    if checks.found is not None:
        wrong = VerificationError(
            f"{checks.found}\n{name} is to be what NumPy makes of it: please report this, with the plan that "
            "the error has as `plan`")
        wrong.plan = checks.plan
        raise wrong from error
    if expected is not None:
        found = next(_call_divergences((result, error), expected, (args, kwargs), copies,
                                       checks.exact), None)
        if found is not None:
            code = getattr(plain, "__code__", None)
            line = (code.co_filename, code.co_firstlineno) if code else None
            raise VerificationError(
                f"{_location(line)}: {name}: {found}; no block differs, so the tracing does, or calls of the "
                "function do not all do the same") from error
    if error is not None:
        raise error
    return result


def _outcome(function: Callable[..., Any], args: tuple[Any, ...],
             kwargs: dict[str, Any]) -> tuple[Any, Exception | None]:
    try:
        return function(*args, **kwargs), None
    except Exception as error:
        return None, error


def _call_divergences(made: Any, wanted: Any, given: Any, copies: Any,
                      exact: bool) -> Iterator[Divergence]:
    (result, error), (plain_result, plain_error) = made, wanted
    if isinstance(error, RecursionError) or isinstance(plain_error, RecursionError):
        return  # how far a recursion went until then depends on the frames before it
    if type(error) is not type(plain_error) or str(error) != str(plain_error):
        yield Divergence("the outcome", repr(error), repr(plain_error))
    for found in divergences(result, plain_result, exact):
        yield found._replace(where=f"the result{found.where}")
    for found in divergences(given, copies, exact):
        yield found._replace(where=f"the arguments afterwards{found.where}")


@contextmanager
def _same_draws() -> Iterator[None]:
    """Give back the numbers drawn from the process's random generators."""
    numbers, words = np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        np.random.set_state(numbers)
        random.setstate(words)


def _copies(name: str, given: Any) -> Any:
    """Return a deep copy of `given` in which arrays share memory as they do in `given`."""
    memo: dict[int, Any] = {}
    buffers: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for array in _arrays(given, {}):
        _copy_view(array, memo, buffers)
    try:
        return deepcopy(given, memo)
    except Exception as reason:
        warnings.warn(f"{name}: the arguments cannot be copied ({reason}), so only its blocks are "
                      "compared with NumPy", JitlaWarning, stacklevel=4)
        return None


def _arrays(value: Any, seen: dict[int, Any]) -> Iterator[np.ndarray]:
    """Yield the ndarrays in containers and attributes."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    if type(value) is np.ndarray:
        yield value
    for part in _parts(value).values():
        yield from _arrays(part, seen)


def _copy_view(array: np.ndarray, memo: dict[int, Any],
               buffers: dict[int, tuple[np.ndarray, np.ndarray]]) -> None:
    """Enter a copy of `array` into `memo`; views of one owner become views of one copy."""
    owner = array
    while type(owner.base) is np.ndarray:
        owner = owner.base
    if owner.base is not None or owner.dtype.hasobject:
        return  # memory of something else: deepcopy knows how
    if id(owner) not in buffers:
        buffers[id(owner)] = (owner, owner.copy("K"))
        memo[id(owner)] = buffers[id(owner)][1]
    copied = buffers[id(owner)][1]
    if array is not owner and copied.flags.forc:
        view: np.ndarray = np.ndarray(array.shape, array.dtype, copied.ravel("K"),
                                      _address(array) - _address(owner), array.strides)
        view.flags.writeable = array.flags.writeable
        memo[id(array)] = view


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def divergences(made: Any, wanted: Any, exact: bool,
                seen: frozenset[int] = frozenset()) -> Iterator[Divergence]:
    """Yield where two values differ: type, dtype, shape, elements, and so on in all their parts."""
    if id(wanted) in seen:
        return
    seen |= {id(wanted)}
    if type(made) is not type(wanted):
        yield Divergence("", type(made).__name__, type(wanted).__name__)
    elif isinstance(wanted, (np.ndarray, np.generic)):
        yield from _array_divergences(made, wanted, exact)
    elif isinstance(wanted, (float, complex)):
        yield from _array_divergences(np.array(made), np.array(wanted), exact)
    elif isinstance(wanted, (bool, int, str, bytes)):
        if made != wanted:
            yield Divergence("", repr(made), repr(wanted))
    else:
        mine, plain = _parts(made), _parts(wanted)
        if mine.keys() != plain.keys():
            yield Divergence("", f"made of {list(mine)}", f"{list(plain)}")
        for place in plain.keys() & mine.keys():
            for found in divergences(mine[place], plain[place], exact, seen):
                yield found._replace(where=f"{place}{found.where}")


def _parts(value: Any) -> dict[str, Any]:
    """Return the elements and attributes of a value by the way to them."""
    parts: dict[str, Any] = {}
    if isinstance(value, Mapping):
        parts = {f"[{key!r}]": item for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        parts = {f"[{i}]": item for i, item in enumerate(value)}
    if not isinstance(value, (type, ModuleType, FunctionType)):
        parts |= {f".{name}": item for name, item in getattr(value, "__dict__", {}).items()}
    return parts


def _array_divergences(made: Any, wanted: Any, exact: bool) -> Iterator[Divergence]:
    for name in ("dtype", "shape"):
        a, b = getattr(made, name), getattr(wanted, name)
        if a != b:
            yield Divergence(f" {name}", str(a), str(b))
            return
    tolerance = 0.0 if exact else TOLERANCE.get(wanted.dtype.char, 0.0)
    bad = ~_close(np.asarray(made), np.asarray(wanted), tolerance)
    if bad.any():
        index = tuple(map(int, np.argwhere(bad)[0])) if bad.ndim else ()
        where = f" at {list(index)} ({int(bad.sum())} of {bad.size} differ)" if bad.ndim else ""
        yield Divergence(where, repr(made[index]), repr(wanted[index]))


def _close(made: np.ndarray, wanted: np.ndarray, tolerance: float) -> np.ndarray:
    """Say for each element whether it is the same, or near enough."""
    same: np.ndarray = made == wanted
    if wanted.dtype.kind not in "fc":
        return np.asarray(same, dtype=bool)
    same = same | (np.isnan(made) & np.isnan(wanted))
    if tolerance and wanted.size:
        with np.errstate(all="ignore"):
            finite = np.isfinite(made) & np.isfinite(wanted)
            size = np.abs(np.where(np.isfinite(wanted), wanted, 0))
            same = same | (finite & (np.abs(made - wanted) <= tolerance * (size + size.max())))
    return same


hide_module(__name__)
