"""Run one program plain and jitted, several calls in a row, and judge the differences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tests.fuzz import load
from tests.fuzz.compare import PART, Fault, Outcome, alike, compare, compare_warnings, outcome
from tests.fuzz.family import DATA
from tests.fuzz.modes import failing, outcomes
from tests.fuzz.noise import TRANSCENDENTAL, ULPS, Exactly, Noisy
from tests.fuzz.sparse_noise import SMOOTH, placed

# (call, threads) where a program does not say: cold, warm, other sizes, layouts, dtypes; again.
SCHEDULE = ((0, 1), (1, 1), (2, 1), (3, 1), (1, 2), (2, 2))
SHAKES = (2, 6, 30)  # what few of them allow, more of them do
SLACK = 4.0
INEXACT = re.compile(
    r"special\.|np\.(" + "|".join(sorted(TRANSCENDENTAL))
    + r"|matmul|dot|einsum|linalg|maximum|minimum|fmax|fmin|clip)\b"
    r"|sum\(|mean\(|@ |\.dot\(|\*\*|\.(max|min|clip)\(|\.(" + "|".join(sorted(SMOOTH)) + r")\("
)
# What differs in documented ways but is exact otherwise: the sign of a NaN, products and magnitudes of
# complex scalars called by name.
LOOSE = re.compile(r"np\.(copysign|signbit)\b|1j|'c(8|16)'")
# Sparse matrices of the old classes, whose `*` is a product of matrices.
OLD = re.compile(r"_matrix\b")

# What a call leaves to the next one.
LASTING = ("KEPT.set", "C0")
SUMMED = re.compile(r"(sum|mean|concatenate)\(|@ |dot\(|matmul\(|outer\(")
# Of what these make SciPy drops zeros, which then are no part of the order in which it adds up.
DROPPING = re.compile(r"[-+<>]|[=!]=|(maximum|minimum|multiply)\(")
EITHER_ZERO = re.compile(r"(maximum|minimum|fmax|fmin|clip|max|min)\(")


# An array of a result: where, and on each side the array and what was in it.
Kept = tuple[str, tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class Texts(NamedTuple):
    """A module, and the parts of a program whose calls have been made or are made now."""

    module: load.Section
    parts: tuple[load.Section, ...]


@dataclass
class Report:
    """What came of one program."""

    calls: int = 0
    raised: int = 0
    undefined: int = 0
    rounding: int = 0
    counted: dict[str, float] = field(default_factory=dict)
    faults: list[tuple[int, int, Fault]] = field(default_factory=list)

    @property
    def compiled(self) -> bool:
        """Whether any kernel ran."""
        return self.counted.get("kernel_runs", 0) > 0


def run(
    source: str,
    name: str,
    jit: Callable[..., Any] | None = None,
    schedule: Sequence[tuple[int, int]] = (),
) -> Report:
    """Run a program's calls, as (call, threads); stop at the first that differs."""
    for report in runs(source, name, jit, schedule):
        if report.faults:
            break
    return report


def runs(
    source: str,
    name: str,
    jit: Callable[..., Any] | None = None,
    schedule: Sequence[tuple[int, int]] = (),
    skip: int = 0,
) -> Iterator[Report]:
    """Run a text with one set of arguments after the other; a difference begins a new module.

    The first sets are left out if `skip` says so.
    """
    parts, sides = load.sections(source), None
    counted: dict[str, float] = {}
    for at, part in list(enumerate(parts))[skip:]:
        if sides is None:
            jits = load.plain_jit, jit or load.the_jit()
            sides = tuple(load.module(parts[0].text, name, each) for each in jits)
            counted = {}
        for names in sides if at else ():
            load.again(part, names)
        before = parts[:at] if "nonlocal" in parts[0].text else ()
        report = _run_part(Texts(parts[0], (*before, part)), name, sides, schedule)
        after = load.stats(sides[1]["f"])
        report.counted = {key: value - counted.get(key, 0) for key, value in after.items()}
        counted = after
        failures = report.counted.get("failures", 0)
        if failures and not report.faults and not sides[0].get("FAULTS"):
            report.faults = [(-1, 0, Fault("internal", "stats", "no failures", f"{failures:g} failures"))]
        sides = None if report.faults else sides
        yield report
    load.forget(name)


def differing(generate: Callable[[int], str], name: str, firsts: Iterable[int]) -> dict[int, Any]:
    """Return the first fault of each program that has one, by its seed, of all with the texts of `firsts`."""
    wrong = {}
    for first in firsts:
        seeds = range(first, first + DATA)
        reports = runs(generate(seeds[-1]), f"{name}-{seeds[-1]}")
        wrong |= {s: r.faults[0] for s, r in zip(seeds, reports, strict=True) if r.faults}
    return wrong


def _run_part(
    texts: Texts, name: str, sides: tuple[dict[str, Any], ...], schedule: Sequence[tuple[int, int]]
) -> Report:
    report, kept = Report(), list[Kept]()
    schedule = tuple(schedule or sides[0].get("CALLS", SCHEDULE))
    lasting = any(word in p.text for p in texts.parts for word in LASTING)
    for at, (call, threads) in enumerate(schedule):
        before = schedule[: at if lasting else min(at, 1)]
        shaken = Shaken(texts, name, [c for c, _ in (*before, (call, threads))])
        with failing(sides[0].get("FAULTS", 0)):
            faults = _one(report, shaken, (sides[0], sides[1]), (call, threads), kept)
        if faults:
            report.faults = [(call, threads, fault) for fault in faults]
        if faults or lasting and report.undefined:  # what is undefined stays in memory
            break
    if not report.faults:
        report.faults = [(-1, 0, fault) for fault in _changed_later(kept)]
    return report


def _one(
    report: Report,
    shaken: Shaken,
    sides: tuple[dict[str, Any], dict[str, Any]],
    step: tuple[int, int],
    kept: list[Kept],
) -> list[Fault]:
    call, threads = step
    plain, jitted = sides
    filename = f"<{shaken.name}>"
    try:
        given = plain["make"](call)
    except TypeError:  # SciPy does not copy matrices that it has left half written
        report.undefined += 1
        return []
    expected = outcome(plain["f"], given, plain["state"], filename)
    with load.threads(threads):
        found = outcomes(jitted, call, plain.get("AT_ONCE", 1), filename)
    report.calls += 1
    report.raised += expected.error is not None
    if expected.undefined:
        report.undefined += 1
        return []
    for actual in found:
        faults = _judged(report, shaken, expected, actual, kept)
        if faults:
            return faults
    return []


def _judged(
    report: Report, shaken: Shaken, expected: Outcome, actual: Outcome, kept: list[Kept]
) -> list[Fault]:
    faults = compare(expected, actual) or compare_warnings(expected, actual)
    if faults and shaken.outcomes(1)[0].undefined:
        report.undefined += 1
        return []
    if faults and any(words.search(shaken.text) for words in (INEXACT, LOOSE, OLD)):
        left = [f for f in faults if not _is_rounding(f, shaken, expected, actual)]
        report.rounding += not left
        faults = left
    elif not faults and not kept and expected.error is None:
        kept += _kept(expected, actual)
    return faults


def _changed_later(kept: list[Kept]) -> list[Fault]:
    """Look at the first results again: later calls must not have touched what they leave alone plain."""
    return [
        Fault("later", path, "unchanged", "changed")
        for path, (plain, plain_then), (jitted, jitted_then) in kept
        if not alike(jitted, jitted_then) and alike(plain, plain_then)
    ]


def _kept(expected: Outcome, actual: Outcome) -> list[Kept]:
    pairs = zip(expected.leaves, actual.leaves, strict=True)
    return [(path, (a, a.copy()), (b, b.copy())) for (path, a), (_, b) in pairs if type(a) is np.ndarray]


class Shaken:
    """Outcomes of the plain program with noise, after the same calls; made when first asked for.

    The first is with functions as wrong as compiled ones.
    """

    def __init__(self, texts: Texts, name: str, calls: list[int]) -> None:
        self.source, self.name, self.calls = texts.module.text, name, calls
        self.text = "\n".join(part.text for part in (texts.module, *texts.parts))  # classes are in parts
        self._parts = texts.parts
        self._made: list[Outcome] = []

    def outcomes(self, count: int) -> list[Outcome]:
        """Return the first `count` outcomes."""
        sums = len(SUMMED.findall(self.source)) > 1
        body = self.source.partition("def f(")[2].partition("def make")[0]
        drops = DROPPING.search(body) is not None
        while len(self._made) < count:
            at = len(self._made)
            noise = Noisy(at - 1, sums, drops) if at else Exactly(load.the_jit())
            names = load.module(self.source, self.name, load.plain_jit, noise)
            for part in self._parts:
                if part.line:
                    load.again(part, names)
                last = part is self._parts[-1]
                for call in self.calls if last else [c for c, _ in names.get("CALLS", SCHEDULE)]:
                    found = outcome(names["f"], names["make"](call), names["state"], f"<{self.name}>")
            self._made.append(found)
        return self._made[:count]


def _is_rounding(fault: Fault, shaken: Shaken, expected: Outcome, actual: Outcome) -> bool:
    """Say whether noise as large as allowed makes a difference as large as this one."""
    if fault.kind == "value" and EITHER_ZERO.search(shaken.source) and _zeros_only(fault, expected, actual):
        return True
    inexact = INEXACT.search(shaken.text) is not None
    if fault.kind == "value" and inexact and _few_steps(fault, expected, actual):
        return True
    for count in SHAKES:
        noisy = shaken.outcomes(count)
        look = compare_warnings if fault.kind == "warnings" else compare
        if any(_same_kind(fault, look(expected, other)) for other in noisy):
            if fault.kind != "value" or _within(fault, expected, actual, noisy):
                return True
    return False


def _few_steps(fault: Fault, expected: Outcome, actual: Outcome) -> bool:
    """Say whether two floats are nowhere further apart than one inexact function may be."""
    a, b = _leaf(fault, expected), _leaf(fault, actual)
    if a.dtype.kind != "f":
        return False
    other = ~(a == b)
    a, b = a[other], b[other]
    with np.errstate(all="ignore"):
        apart = _distance(a.astype(np.longdouble), b.astype(np.longdouble))
        return bool(np.all(apart <= ULPS * np.where(np.isfinite(a), np.abs(np.spacing(a)), 0)))


def _zeros_only(fault: Fault, expected: Outcome, actual: Outcome) -> bool:
    """Say whether a leaf differs in the signs of zeros only: maxima and minima leave them open."""
    a, b = _leaf(fault, expected), _leaf(fault, actual)
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))


def _leaf(fault: Fault, found: Outcome) -> np.ndarray:
    held = dict(found.leaves)
    leaf = held[max((p for p in held if fault.path == p or fault.path.startswith(p + "[")), key=len)]
    # How many elements a matrix of a product stores is rounding, too: which of its sums vanish.
    return leaf.toarray() if sp.issparse(leaf) else np.asarray(leaf)


def _same_kind(fault: Fault, others: list[Fault]) -> bool:
    path = fault.path.split("[")[0] if fault.kind == "value" else fault.path
    return any(o.kind == fault.kind and o.path.startswith(path) for o in others)


def _within(fault: Fault, expected: Outcome, actual: Outcome, noisy: list[Outcome]) -> bool:
    """Say whether a leaf is within the spread of its noisy values, element by element."""
    a, b = _leaf(fault, expected), _leaf(fault, actual)
    if a.dtype.kind == "O":
        return False
    parts = dict(expected.leaves)
    found = [(placed(fault.path, parts, dict(o.leaves)), _leaf(fault, o)) for o in noisy]
    others = [leaf if same is None or same.shape != a.shape else same for same, leaf in found]
    reshaped = any(o.shape != a.shape for o in others)
    others = [o for o in others if o.shape == a.shape and o.dtype == a.dtype]
    if reshaped and a.dtype.kind in "fc" and PART.search(fault.path.rpartition("[")[0]):
        # Which sums vanish, and are not stored, is rounding, too: no entry has a place to look at.
        near = 64 * np.finfo(a.dtype).eps * np.abs(a).max(initial=0, where=np.isfinite(a))
        return a.shape == b.shape and bool(np.allclose(a, b, rtol=0, atol=near, equal_nan=True))
    size = np.abs(a) if a.dtype.kind in "fc" else a
    if a.dtype.kind == "c":
        a, b, *others = (np.stack((x.real, x.imag)) for x in (a, b, *others))
    if a.dtype.kind != "f":
        moved = np.any([o != a for o in others], axis=0) if others else np.zeros(a.shape, bool)
        return bool(np.all((a == b) | moved))
    with np.errstate(all="ignore"):
        wide = [x.astype(np.longdouble) for x in (a, b, *others)]
        spread = np.max([_distance(o, wide[0]) for o in wide[2:]], axis=0) if others else 0
        # Where noise vanishes in a rounding, one step may still go the other way.
        step = np.where(np.isfinite(size), np.spacing(size), 0) * bool(np.any(spread))
        near = _distance(wide[1], wide[0]) <= SLACK * spread + 2 * step
        # Where noise leaves nothing of a value, as of tangents of huge ones, any that is no larger will do.
        most = np.max(np.abs(wide[2:]), initial=0, where=np.isfinite(wide[2:])) if others else 0
        return bool(np.all(near | (spread >= size) & (np.abs(wide[1]) <= most)))


def _distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return how far apart numbers are: infinite if only one is finite, 0 if both are the same."""
    apart = np.where(np.isnan(x) & np.isnan(y) | (x == y), 0, np.abs(x - y))
    # Zeros of either sign: an unsigned distance; NaN against a number: infinite.
    return np.where(np.isnan(apart), np.inf, apart)
