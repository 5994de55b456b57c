"""`generate(seed)`: a module with a plain function of sparse matrices of SciPy and dense arrays."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from textwrap import indent
from typing import Any

import numpy as np
import scipy.sparse as sp

from tests.fuzz import matrices as making
from tests.fuzz.arrays import VALUES
from tests.fuzz.draft import CALLS, KINDS, PREAMBLE, Draft, Slot, code, leaves
from tests.fuzz.expressions import number
from tests.fuzz.family import Families
from tests.fuzz.load import arguments
from tests.fuzz.statements import simple

# Random statements about sparse matrices, mixed with dense arrays

MOST_ENTRIES, MOST_PLACES = 20_000, 100_000
SLICES = ("1:", ":-1", "2:5", ":", "1:4", "::2", "::-1", ":1", ":0", "-3:", "3:1")

# {X}: a matrix; {Y}: one of its shape; {Z}: one with as many rows as it has columns; {D}: a dense array of
# its shape; {r}, {c}: vectors, one element a column or a row; {R}, {C}: dense matrices, one row a column or
# a row; {n}: a number; {p}: an exponent; {i}, {j}: indices of a row, a column; {l}: a slice; {s}, {t}, {q}:
# new names of a sparse matrix, of an array, of anything.
ENTRIES = (
    "{X}.multiply({D})",
    "{X}.multiply({D})", "{X}.multiply({D})", "{X} * {D}", "{D} * {X}", "{X}.multiply({Y})",
    "{X}.multiply({Y})", "{X} * {Y}", "{X}.multiply({n})", "{X} * {n}", "{n} * {X}", "{X} / {n}",
    "{X}.multiply({r})", "{X}.multiply({c}[:, None])", "{X}.multiply({r}[None, :])", "{X} * {r}",
    "{X} * {c}[:, None]", "-{X}", "abs({X})", "np.abs({X})", "{X}.power({p})", "{X}.power({p})",
    "{X} + {Y}", "{X} + {Y}", "{X} - {Y}", "{X} - {X}", "{X}.maximum({Y})", "{X}.minimum({Y})",
    "{X}.maximum({n})", "{X}.minimum({n})", "{X}.maximum(0)", "{X}.multiply({X})", "{X}.sign()",
    "({X} != 0)", "({X} != 0).multiply({D})", "({X} > 0)", "({X} > 0.5) * {n}", "({X} < 0)", "({X} < -1)",
    "({X} != {Y})", "({X} > {Y})", "({X} < {Y})", "({X} == {n})", "({X} != {n})", "({X} >= 1)",
    "{X}.sqrt()", "np.sqrt(abs({X}))", "{X}.floor()", "{X}.rint()", "{X}.conj()", "{X}.real", "{X}.ceil()",
    "{X}.astype('f4')", "{X}.astype('f8')", "{X}.astype(bool)", "{X}.astype('i4', copy=False)",
    "{X}.copy()", "({X} + {Y}).multiply({X})", "({X} + {Y}).multiply({D})",
    "{X}.multiply({D}).multiply({D})", "{X}.multiply({D}) + {Y}", "{X}.multiply({D}) - {Y}.multiply({D})",
    "{X}.multiply({D} + {n}) * {n}", "{X}.multiply({c}[:, None] * {r})", "{X}.multiply({C} @ {R}.T)",
    "({X} != 0).multiply({C} @ {R}.T)", "{X} - {X}.multiply({C} @ {R}.T)", "{X}.multiply(1 / ({D} + {n}))",
    "{X} ** {p}", "{X}.trunc()", "type({X})(({X}.data * {n}, {X}.indices, {X}.indptr), shape={X}.shape)",
    "sp.csr_array(({X}.data + {n}, {X}.indices, {X}.indptr), shape={X}.shape)",
    "sp.csr_matrix(({X}.data ** 2, {X}.indices, {X}.indptr), shape={X}.shape, copy=True)",
    "sp.coo_array(({X}.data, ({X}.row, {X}.col)), shape={X}.shape)",
)
SMOOTH = (  # what is not rounded as NumPy rounds
    "{X}.log1p()", "{X}.expm1()", "{X}.sin()", "{X}.tanh()", "{X}.arctan()", "np.log1p(abs({X}))",
    "{X}.multiply(np.log({C} @ {R}.T + 1e-3))", "{X}.multiply(np.exp({D}))", "{X}.multiply(np.tanh({D}))",
    "{X}.multiply(np.log(np.abs({D}) + {n}))", "{X}.multiply(1 / (1 + np.exp(-{C} @ {R}.T)))",
)
FORMATS = (
    "{X}.T", "{X}.T", "{X}.T.tocsr()", "{X}.transpose()", "{X}.tocsc()", "{X}.tocsr()", "{X}.tocoo()",
    "{X}.asformat('csr')", "{X}.tocsr(copy=True)", "{X}.T.T", "{X}.tolil()", "{X}.todok()", "{X}.todia()",
    "{X}[{l}]", "{X}[{l}]", "{X}[{l}, :]", "{X}[:, {l}]", "{X}[{i}]", "{X}[[{i}, {i}]]", "{X}[{i}, :]",
    "{X}[:, [{j}]]", "{X}[{c} > 0]", "{X}[np.flatnonzero({c} > 0)]", "{X}[{l}].multiply({X}[{l}])",
    "{X}.getrow({i})", "sp.hstack([{X}, {Y}])", "sp.vstack([{X}, {Y}])",
    "sp.vstack([{X}, {Y}], format='csr')", "sp.hstack([{X}, {Y}], format='csr')",
    "sp.hstack([{X}, sp.csr_array({c}[:, None])]).tocsr()", "sp.csr_array({D})", "sp.csr_matrix({D})",
    "sp.csc_array({D})", "sp.coo_matrix({D})", "sp.csr_array({X})", "sp.csr_matrix({X})",
    "sp.diags_array({c}) @ {X}", "sp.diags({c}) @ {X}", "{X} @ sp.diags_array({r})",
    "sp.diags({c}, format='csr') * {X}", "sp.tril({X})", "sp.triu({X}, format='csr')", "sp.find({X})[2]",
    "sp.eye_array({X}.shape[0], format='csr') @ {X}", "{X}.reshape((1, -1))", "{X}.max(axis=0)",
    "{X}.min(axis=1)", "{X} @ {X}.T", "{X}.T @ {X}", "{X}.T @ {Y}", "{X} @ {Z}", "{X}.dot({Z})",
    "{X}.T.multiply({D}.T)", "{X}.tocsc().multiply({D})", "{X}.tocoo().multiply({D})", "{X}.T * {n}",
)
DENSE = (
    "{X} @ {r}", "{X} @ {r}", "{X} @ {r}", "{X}.dot({r})", "{X}.T @ {c}", "{X}.T @ {c}", "{X}.T.dot({c})",
    "{c} @ {X}", "{X} @ {R}", "{X} @ {R}", "{X}.dot({R})", "{X}.T @ {C}", "{X}.T @ {C}", "{C}.T @ {X}",
    "{X} * {r}", "{X}.T * {c}", "{X}.sum(axis=0)", "{X}.sum(axis=1)", "{X}.sum(axis=-1)", "{X}.sum(1)",
    "np.asarray({X}.sum(axis=1)).ravel()", "np.ravel({X}.sum(0))", "{X}.mean(axis=0)", "{X}.mean(axis=1)",
    "{X}.toarray()", "{X}.toarray() * {n}", "{X}.todense()", "{X} + {D}", "{D} - {X}", "{D} + {X}",
    "{X}.max(axis=1).toarray()", "{X}.max(axis=0).toarray().ravel()", "{X}.diagonal()",
    "np.diff({X}.indptr)", "{X}.data * {n}", "{X}.data + {X}.data", "{X}.getnnz(axis=1)",
    "{X}.getnnz(axis=0) * {r}", "{X}.argmax(axis=1)", "{X}.T @ ({c} * ({X} @ {r}))", "{X}.T @ ({X} @ {r})",
    "{X}.T @ ({X} @ {R})", "{X}.T @ (({X} @ {r}) - {c})", "{X}.T.dot({X}.dot({r})) + {r}",
    "{X}.T @ ({c}[:, None] * ({X} @ {R}))", "{X}.T @ ({C} - {C} * ({X} @ {R}).sum(axis=1)[:, None])",
    "{X}.multiply({D}) @ {r}", "{X}.multiply({C} @ {R}.T) @ {R}", "({X} != 0).multiply({C} @ {R}.T) @ {R}",
    "{X}.multiply({C} @ {R}.T).T @ {C}", "(({X} != 0) * ({C} @ {R}.T)) @ {R}",
    "{X}.multiply({r}).sum(axis=1)", "{X}.multiply({D}).sum(axis=0)", "{X}.multiply({X}).sum(axis=1)",
    "({X} + {Y}) @ {r}", "({X} * 2) @ {r}", "np.sqrt({X}.power(2).sum(axis=0))",
    "{X}.multiply({D}).toarray()", "np.bincount({X}.indices, {X}.data)", "({X} @ {r}) / ({c} + {n})",
    "np.maximum(0, 1 - {c} * ({X} @ {r}))", "({X} > 0) @ {r}", "{X}[{l}] @ {r}", "{X}[{l}].T @ {c}[{l}]",
    "{X}[{i}].toarray()", "{X}[{l}].toarray()", "{X}[{i}] @ {r}",
    "np.add.reduceat({X}.data, {X}.indptr[:-1])", "{X}.indices[:5] * 2", "{D}[{X}.nonzero()]",
    "{r} @ {X}.T", "{r} * {X}.T", "{X}.astype('f8') @ {r}", "{X} @ {D}.T", "{X}.T @ {D}", "{D} @ {X}.T",
)
NUMBERS = (
    "{X}.sum()", "{X}.sum()", "{X}.nnz", "{X}.nnz * {n}", "{X}.max()", "{X}.min()", "{X}.mean()",
    "{X}.count_nonzero()", "{X}.multiply({D}).sum()", "{X}.multiply({D} * {n}).sum()", "({X} * {D}).sum()",
    "{X}.multiply({Y}).sum()", "({X} + {Y}).multiply({X}).sum()", "{X}.multiply({C} @ {R}.T).sum()",
    "(({X} - {X}.multiply({C} @ {R}.T)).power(2)).sum()", "({X} != 0).sum()", "{X}.data.sum()",
    "{X}[{i}, {j}]", "np.sum({X})", "{X}.trace()", "abs({X} - {Y}).max()", "{X}.power(2).sum() ** 0.5",
    "{c} @ ({X} @ {r})", "{X}.multiply({X}).sum()", "abs({X}).sum() / {X}.shape[0]",
    "{X}.shape[1] + {X}.ndim", "({X} > 0).nnz",
)
WRITES = (
    "{X}.data *= {n}", "{X}.data[:] = {X}.data + {n}", "{X}.data += 1", "{X}.data[:3] = 0",
    "{X}.data = {X}.data * {n}", "{X}.data[{X}.data < 0] = 0", "{X} *= {n}", "{X} /= {n}", "{X} += {Y}",
    "{X} -= {Y}", "{X}.sort_indices()", "{X}.sum_duplicates()", "{X}.eliminate_zeros()", "{X} *= {Y}",
    "{X}.indices[:2] = {X}.indices[:2][::-1].copy()", "{X}.indices[:] = {X}.indices[::-1].copy()",
    "{X}.indptr[1:-1][:1] = 0", "{X}.indices = {X}.indices.copy()", "{X}[{i}, {j}] = {n}", "{X}[{i}] = 0",
    "{X}.setdiag({n})", "{D} *= {n}", "{D}[...] = 1.5", "{r}[:1] = {n}", "{c} += 1",
    "{X}.data = np.abs({X}.data)", "{X}.data /= np.repeat({c}, np.diff({X}.indptr))",
    "{X}.data[:] = {X}.data.copy()", "{X} += {D}", "np.multiply({X}.data, {n}, out={X}.data)",
    "{X}.data -= {X}.data.mean()", "{D} += {X}.toarray()", "{D} -= {X}", "{X}.prune()",
    "{X}.resize(*{X}.shape)",
)
TOLD = (
    "log.append((type({X}).__name__, {X}.format, {X}.shape, {X}.nnz, str({X}.dtype)))",
    "log.append(repr({X}))", "log.append(({X}.has_sorted_indices, {X}.has_canonical_format))",
    "log.append(sp.issparse({X}))", "log.append(isinstance({X}, sp.csr_array))",
    "log.append(isinstance({X}, sp.sparray))", "log.append(({X}.indices.dtype.str, {X}.indptr.dtype.str))",
    "log.append(str({X})[:60])",
    "log.append([type(t).__name__ for t in ({X}.sum(axis=0), {X}.T, {X} * 2)])", "log.append({X}.ndim)",
    "log.append((({X} != {Y}).nnz, {X} is {Y}, {X}.shape == {Y}.shape))", "log.append({X}.T.format)",
    "log.append([row.nnz for row in {X}][:3])", "log.append({X}.dtype == {D}.dtype)",
    "log.append({X}.multiply({D}).nnz)", "log.append(np.shares_memory({X}.data, {X}.T.data))",
)
ODD = (
    "{X} + 1", "2 / {X}", "np.exp({X})", "{X} @ {c}", "{X} @ {C}", "{X} @ {r}[1:]", "bool({X})", "len({X})",
    "{X} ** -1", "{X}.power(0)", "{X} ** 0", "np.dot({X}, {r})", "hash({X})", "{X} >= 0", "{X} == 0",
    "{X} == {X}", "{X} / {Y}", "{X} / {D}", "{D} / {X}", "{X} < np.nan", "{X} * np.nan", "{X} * np.inf",
    "{X} / 0", "{X} / 0.0", "np.maximum({X}, 0)", "np.sign({X})", "np.isnan({X})", "{X}.multiply({c})",
    "{X} @ None", "{X} * 'a'", "{X}.multiply([1, 2])", "{X} % 2", "{X} // 2", "{X} & {X}", "~{X}",
    "{X} << 1", "float({X})", "{X}.nowhere", "np.asarray({X})", "np.sum({X}, axis=1)", "np.mean({X})",
    "np.max({X})", "np.zeros_like({X})", "{X}[0, 0, 0]", "{X}[{X} > 0]", "{X}[99999]",
    "sp.vstack([{X}, {X}.T])", "{X} @ {X}", "{X} + {X}.T", "{X}.multiply({X}.T)", "np.multiply({X}, {X})",
    "np.multiply({X}, 2)", "np.multiply({X}, {D})", "np.multiply({D}, {X})", "np.add({X}, {X})",
    "np.matmul({X}, {r})", "{X}.sum(axis=2)",
    "{X}.sum(dtype='f4')", "{X}.sum(axis=0, dtype='f8')", "{X}.sum(axis=(0, 1))", "{X} @ 2", "{X}.dot(2)",
    "{X}.mean(axis=None, dtype='f4')", "list({X})", "{X} and 1", "sum({X})", "max({X}.shape)", "{X}.A",
    "np.linalg.norm({X})", "{X}.transpose(copy=True)", "{X}.transpose((1, 0))", "np.transpose({X})",
    "{X}.multiply()", "{X} @ sp.csr_array({r})", "{X}.reshape((-1, 2))", "abs({X}, 2)",
    "{X}.tocsr(copy=False) is {X}", "{X}.H",
)
CHOICES: dict[tuple[str, tuple[str, ...]], float] = {
    ("{s} = ", ENTRIES): 30, ("{s} = ", FORMATS): 14, ("{t} = ", DENSE): 26, ("{q} = ", NUMBERS): 12,
    ("", WRITES): 9, ("", TOLD): 5, ("odd", ODD): 7, ("{s} = ", SMOOTH): 6,
}
LAST = {"{s} = ": "s", "{t} = ": "v", "{q} = ": "q"}
POWERS = ("2", "3", "2", "0.5", "1", "-1", "2.0", "1.5", "2")
EXACT_POWERS = ("2", "2", "0.5", "1", "2.0")
CELLWISE = (
    "({a} + {n})", "({a} * {n})", "({a} - {b})", "({a} * {b})", "np.maximum({a}, {n})", "np.abs({a})",
    "({a} > {n})", "np.sqrt(np.abs({a}))", "({a} / {n})", "np.where({a} > 0, {a}, {n})", "({a} / {b})",
    "{a}.astype('f4')", "({n} - {a})", "(-{a})", "({a} ** 2)", "({a} + {a})", "np.square({a})", "{a}[...]",
)
SMOOTH_CELLWISE = ("np.exp({a})", "np.log(np.abs({a}) + 1)", "1 / (1 + np.exp(-{a}))", "np.tanh({a})")
FIELD = re.compile(r"\{(\w)\}")


def matrices(draft: Draft, fits: Callable[[Any], bool] = lambda _: True) -> list[str]:
    """Return the names that hold a sparse matrix."""
    return [name for name, held in draft.names.items() if sp.issparse(held) and fits(held)]


def too_large(draft: Draft) -> bool:
    """Say whether some matrix has grown beyond what is worth comparing."""
    held = [draft.names[name] for name in matrices(draft)]
    return any(x.nnz > MOST_ENTRIES or np.prod(x.shape, dtype=float) > MOST_PLACES for x in held)


def stored(draft: Draft) -> str | None:
    """Draw a statement about sparse matrices."""
    (head, forms), = draft.rng.choices(list(CHOICES), list(CHOICES.values()))
    if forms is SMOOTH and draft.exact:
        forms = ENTRIES
    text = _filled(draft, draft.pick(forms))
    if text is None:
        return None
    if head == "odd":
        name = draft.new_name("q")
        return _awaited(f"{name} = {text}")
    return f"{_name(draft, LAST[head])} = {text}" if head else text


def _awaited(line: str) -> str:
    return f"try:\n{indent(line, '    ')}\nexcept Exception as e:\n    log.append((type(e).__name__, str(e)))"


def risked(text: str) -> str:
    """Return a statement that raised, with what keeps what it says."""
    return _awaited(text)


def _name(draft: Draft, letter: str) -> str:
    old = [n for n in draft.names if n[0] == letter and n[1:].isdigit()]
    return draft.pick(old) if old and draft.chance(0.3) else draft.new_name(letter)


def _filled(draft: Draft, form: str) -> str | None:
    """Put names and expressions in the places of a form."""
    names = matrices(draft, lambda x: x.ndim == 2) if draft.chance(0.97) else matrices(draft)
    writes = form in WRITES
    if writes and "data" in form:  # of lil these are lists: longer ones make SciPy write where it must not
        names = [name for name in names if draft.names[name].format != "lil"]
    if not names:
        return None
    name = draft.pick(names[-4:]) if draft.chance(0.5) else draft.pick(names)
    shape = draft.names[name].shape
    rows, columns = (shape[0], shape[-1]) if shape else (1, 1)

    def part(match: re.Match[str]) -> str:
        field = match.group(1)
        if field == "X":
            return name
        if field == "Y":
            return draft.pick(matrices(draft, lambda x: x.shape == shape))
        if field == "Z":
            return draft.pick(matrices(draft, lambda x: x.shape[0] == columns) or [f"{name}.T"])
        if field in "DrcRC":
            sizes = {"D": shape, "r": (columns,), "c": (rows,), "R": (columns, 0), "C": (rows, 0)}
            return dense(draft, sizes[field], plain=writes)
        return _small(draft, field, rows, columns)

    return FIELD.sub(part, form)


def _small(draft: Draft, field: str, rows: int, columns: int) -> str:
    if field == "n":
        return number(draft)
    if field == "l":
        return draft.pick(SLICES)
    if field == "p":
        return draft.pick(EXACT_POWERS if draft.exact else POWERS)
    return str(draft.pick((0, -1, *range(min(rows if field == "i" else columns, 5)))))


def dense(draft: Draft, shape: tuple[int, ...], plain: bool = False) -> str:
    """Draw a dense operand; a second dimension of 0 stands for any."""
    wide = len(shape) == 2 and not shape[1]
    fits = draft.arrays(lambda a: a.shape == shape or wide and a.ndim == 2 and a.shape[0] == shape[0])
    if plain and fits:
        return draft.pick(fits)
    if len(shape) == 2 and not wide and draft.chance(0.3 if fits else 0.7):
        return _formed(draft, shape)
    if not fits:
        return f"np.full({(shape[0], 2) if wide else shape}, {number(draft)})"
    a = draft.pick(fits)
    if draft.chance(0.5):
        return a
    forms = CELLWISE if draft.exact or draft.chance(0.7) else SMOOTH_CELLWISE
    same = draft.arrays(lambda b: b.shape == draft.value(a).shape)
    return draft.pick(forms).format(a=a, b=draft.pick(same), n=number(draft))


def _formed(draft: Draft, shape: tuple[int, ...]) -> str:
    """Draw a matrix made of two others, or of two vectors."""
    left = draft.arrays(lambda a: a.ndim == 2 and a.shape[0] == shape[0] and 0 < a.shape[1] < 9)
    right = draft.arrays(lambda a: a.ndim == 2 and a.shape[0] == shape[1] and 0 < a.shape[1] < 9)
    pairs = [
        (a, b) for a in left for b in right if draft.value(a).shape[1] == draft.value(b).shape[1]
    ]
    if pairs and draft.chance(0.7):
        a, b = draft.pick(pairs)
        product = f"({a} @ {b}.T)"
        more = ("{}", "{}", "({} + {n})", "({} * {n})", "np.abs({})", "np.maximum({}, {n})", "({n} - {})")
        return draft.pick(more).format(product, n=number(draft))
    columns, rows = (dense(draft, (size,), plain=True) for size in shape[::-1])
    forms = ("({c}[:, None] * {r})", "({c}[:, None] + {r}[None, :])", "np.outer({c}, {r})",
             "np.broadcast_to({r}, {s})")
    return draft.pick(forms).format(c=rows, r=columns, s=shape)


# Modules

CLASSES = {
    "csr_array": 34, "csr_matrix": 26, "csc_array": 9, "csc_matrix": 7, "coo_array": 8, "coo_matrix": 5,
    "bsr_array": 0.7, "dia_matrix": 0.7, "lil_array": 0.7, "dok_matrix": 0.7,
}
DTYPES = {
    "f8": 55, "f4": 22, "i8": 6, "i4": 5, "?": 5, "c16": 3, "c8": 1, "i1": 1.5, "u1": 1.5, "i2": 1, "u4": 1,
    "g": 0.5,
}
INDICES = {"i4": 3, "i8": 1}
DENSITIES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.2, 0.3, 0.6, 1.0)
RARE = {"unsorted": 0.2, "duplicates": 0.15, "zeros": 0.25, "holes": 0.2, "skewed": 0.15, "readonly": 0.02}
DENSE_LAYOUTS = {"C": 70, "F": 12, "sliced": 6, "reversed": 4, "permuted": 4, "readonly": 3, "offset": 4}
ROWS = (1, 2, 3, 5, 8, 9, 16, 17, 33, 64, 65, 129)
COLUMNS = (1, 2, 4, 7, 8, 12, 16, 19, 34, 65)
LARGE = ((2050, 9), (1300, 17), (257, 129), (40, 900), (600, 33))
# What happens between calls, as (call, threads): SciPy takes its time, so there are few.
SCHEDULES = (
    ((0, 1), (1, 1)), ((0, 1), (1, 2)), ((0, 1), (0, 1)), ((0, 1), (1, 1), (2, 1)), ((0, 2), (1, 1), (3, 2)),
    ((0, 1), (2, 1), (0, 1)), ((0, 1), (3, 1), (0, 2)),
)
SHAPES = ("(n, m)", "(m,)", "(n,)", "(n, k)", "(m, k)", "(n, m)", "(n,)", "(m,)")
# What X1 may be instead of a matrix of its own.
ALIASES = (
    "X0", "X0.T", "X0.copy()", "alike(X0, 'normal', 5 + call)", "alike(X0)", "X0.T.copy().T",
    "X0[:] if X0.format in ('csr', 'csc') else X0",
)
# What its owner does to a matrix between two calls that get it. Who writes positions has to tell SciPy.
_TOLD = "; X0.has_canonical_format = X0.has_sorted_indices = False"
BETWEEN = (
    "X0.data *= 1.5", "X0.sort_indices()", "X0.sum_duplicates()", "X0.eliminate_zeros()", "X0.data[:2] = 3",
    f"X0.indices[:2] = X0.indices[:2][::-1].copy(){_TOLD}", f"X0.indptr[1:-1][:1] = 0{_TOLD}",
    f"X0.indices[:] = X0.indices[::-1].copy(){_TOLD}",
    "X0.indices = X0.indices.copy()", "X0.data = X0.data.copy()", "X0.data = X0.data * 2.0",
    "X0.has_canonical_format", "X0.setdiag(2)", "X0.indptr = X0.indptr.copy()",
)
PREAMBLE.update(sp=sp, matrix=making.matrix, alike=making.alike)


@dataclass(frozen=True)
class Stored:
    """A matrix to be made: equal kinds or dtypes twice mean that later calls change nothing."""

    shape: str
    kinds: tuple[str, str]
    dtypes: tuple[str, str]
    indices: tuple[str, str]
    values: str
    density: float
    traits: str
    seed: int

    def text(self) -> str:
        """Return the expression that makes it."""
        kind, dtype, index = (
            f"'{a}'" if a == b else f"('{a}', '{b}')[call > 2]"
            for a, b in (self.kinds, self.dtypes, self.indices)
        )
        return (f"matrix({kind}, {self.shape}, {dtype}, {index}, '{self.values}', {self.density},"
                f" '{self.traits}', {self.seed} + call)")


class SparseFrame:
    """Everything around the body: sizes, arguments, the calls to be made."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.kind = draft.weighted(KINDS)
        self.dtype = draft.weighted(DTYPES)
        self.large = draft.chance(0.05)
        self.matrices = [self._stored(i) for i in range(draft.pick((1, 2, 2, 3)))]
        self.slots = [self._slot(i) for i in range(draft.pick((5, 6, 7, 8)))]
        self._draw_calls()

    def _draw_calls(self) -> None:
        """Draw what calls differ in: sizes, numbers, which arguments share memory."""
        draft = self.draft
        self.sizes = [self._sizes(call) for call in range(CALLS)]
        if draft.chance(0.5):
            self.sizes[1] = self.sizes[0]
        self.rate = draft.pick(("0.5", "3", "1.5 * call"))
        self.schedule = draft.pick(SCHEDULES)
        self.faults = draft.pick((1, 2, 3)) if draft.chance(0.03) else 0
        self.at_once = draft.pick((2, 3)) if draft.chance(0.04) else 1
        # The same objects in several calls, as the call before and their owner left them.
        self.again = draft.chance(0.25)
        self.between = draft.pick(BETWEEN) if self.again and draft.chance(0.6) else ""
        if self.again:
            self.sizes = self.sizes[:1] * CALLS
        self.instead = draft.pick(ALIASES) if len(self.matrices) > 1 and draft.chance(0.3) else ""

    def _sizes(self, call: int) -> tuple[int, int, int]:
        draft = self.draft
        if self.large and (call == 0 or draft.chance(0.5)):
            return *draft.pick(LARGE), draft.pick((1, 2))
        if call == 0 and draft.chance(0.8):  # sizes that are equal, or 1, by chance fit in one call only
            return draft.pick(ROWS[4:]), draft.pick(COLUMNS[2:]), draft.pick((2, 3, 5))
        n, m = draft.pick(ROWS), draft.pick(COLUMNS)
        return (0 if draft.chance(0.02) else n), (0 if draft.chance(0.02) else m), draft.pick((1, 2, 3, 5))

    def _stored(self, place: int) -> Stored:
        draft = self.draft
        kind, index = draft.weighted(CLASSES), draft.weighted(INDICES)
        dtype = self.dtype if draft.chance(0.8) else draft.weighted(DTYPES)
        later = draft.chance(0.2)
        traits = " ".join(name for name, chance in RARE.items() if draft.chance(chance))
        return Stored(
            draft.pick(("(n, m)",) * 5 + ("(m, n)", "(m, m)", "(n, n)")) if place else "(n, m)",
            (kind, draft.weighted(CLASSES) if later else kind),
            (dtype, draft.weighted(DTYPES) if later and draft.chance(0.3) else dtype),
            (index, draft.weighted(INDICES) if later else index),
            self.kind if draft.chance(0.85) else draft.pick(VALUES),
            draft.pick(DENSITIES), traits, 100 + 10 * place,
        )

    def _slot(self, place: int) -> Slot:
        draft = self.draft
        dtype = self.dtype if draft.chance(0.8) else draft.weighted(DTYPES)
        values = self.kind if draft.chance(0.85) else draft.pick(VALUES)
        layout = draft.weighted(DENSE_LAYOUTS)
        layouts = layout, draft.weighted(DENSE_LAYOUTS) if draft.chance(0.2) else layout
        return Slot(SHAPES[place], (dtype, dtype), layouts, values, 10 * place)

    def redrawn(self, rng: random.Random, bold: bool) -> SparseFrame:
        """Return a frame with other sizes, positions, values; if `bold`, also classes, dtypes, aliases."""
        other = copy.copy(self)
        other.draft = draft = copy.copy(self.draft)
        draft.rng, draft.names, draft.places = rng, dict(PREAMBLE), {}
        other.slots = [
            replace(
                slot, values=draft.weighted(KINDS) if draft.chance(0.3) else slot.values,
                layouts=other._slot(0).layouts if draft.chance(0.2) else slot.layouts,
                seed=slot.seed + draft.pick(range(100, 9999)))
            for slot in self.slots
        ]
        other.matrices = [
            replace(other._stored(place), shape=old.shape, **({} if bold and draft.chance(0.15) else {
                "kinds": old.kinds, "dtypes": old.dtypes}), seed=old.seed + draft.pick(range(100, 9999)))
            for place, old in enumerate(self.matrices)
        ]
        instead = self.instead
        other._draw_calls()
        if not bold or draft.chance(0.6):
            other.instead = instead
        return other

    @property
    def given(self) -> list[str]:
        """Return the names of the arguments."""
        return [f"X{i}" for i in range(len(self.matrices))] + [f"x{i}" for i in range(len(self.slots))]

    def lines(self) -> list[str]:
        """Return the statements that make the arguments of one call."""
        lines = []
        for i, made in enumerate(self.matrices):
            text = self.instead if i == 1 and self.instead else made.text()
            lines.append(f"X{i} = {f'KEPT.setdefault({i}, {text})' if self.again and i < 2 else text}")
        # Of another matrix with the same arrays SciPy would not know.
        if self.between and not (_TOLD in self.between and "alike" in self.instead):
            lines.append(f"if call:\n    try:\n        {self.between}\n    except Exception:\n        pass")
        lines += [f"x{i} = {slot.text()}" for i, slot in enumerate(self.slots)]
        return [*lines, f"G1 = {self.rate}"]

    def makers(self, body: str) -> str:
        """Return the text of `make` and `state`."""
        lines = "\n".join(self.lines())
        text = [
            "KEPT = {}",
            f"CALLS = {self.schedule}",
            *[f"FAULTS = {self.faults}"] * (self.faults > 0),
            f"AT_ONCE = {1 if self.again or 'warnings.' in body else self.at_once}",
            "",
            "",
            "def make(call):",
            "    global G1",
            f"    n, m, k = {self.sizes}[call]",
            indent(lines, "    "),
            f"    return {', '.join(self.given)}, []",
            "",
            "",
            "def state():",
            "    return G1,",
        ]
        return "\n".join(text)

    def start(self, body: str | None = None) -> None:
        """Give the draft the values of the first call, made by the code that will make them."""
        draft, names = self.draft, self.draft.names
        exec(arguments(self.makers(body or "")), names)
        *given, names["log"] = names["make"](0)
        names.update(zip(self.given, given, strict=True))
        del names["make"], names["state"], names["KEPT"], names["CALLS"], names["AT_ONCE"]
        names.pop("FAULTS", None)
        draft.helpers, draft.foreign, draft.places = {}, {}, {}


def _first(seed: int) -> tuple[SparseFrame, list[str]]:
    """Draw the first program of a family."""
    draft = Draft(seed)
    frame = SparseFrame(draft)
    frame.start()
    lines: list[str] = []
    for _ in range(draft.pick((2, 3, 4, 5, 6, 8, 10))):
        _add(draft, frame, lines)
    return frame, [*lines, _result(draft)]


def _add(draft: Draft, frame: SparseFrame, lines: list[str]) -> None:
    """Draw one more line, or none if what was drawn does not run."""
    if draft.chance(0.12):
        text = simple(draft)
        lines += [text] if text else []
        return
    text = _repeated(draft) if draft.chance(0.08) else stored(draft)
    if text is None:
        return
    if draft.run(text) and not too_large(draft):
        lines.append(text)
        return
    _restart(draft, frame, lines)
    text = risked(text)
    if draft.chance(0.15) and draft.run(text) and not too_large(draft):
        lines.append(text)


def _repeated(draft: Draft) -> str | None:
    """Draw a loop, or a branch, around some lines."""
    lines = [text for _ in range(draft.pick((1, 2, 3))) if (text := stored(draft))]
    head = draft.pick(("for turn in range(2):", "for turn in range(3):", "if x0.size:", "if X0.nnz > 3:"))
    return f"{head}\n{indent(chr(10).join(lines), '    ')}" if lines else None


def _restart(draft: Draft, frame: SparseFrame, lines: list[str]) -> None:
    """Bring the draft back to where it was before a line that raised."""
    draft.names = dict(PREAMBLE)
    frame.start()
    for line in lines:
        if not leaves(line):
            draft.run(line)


def _result(draft: Draft) -> str:
    names = [n for n in draft.names if n[0] in "vsqxX" and n[1:].isdigit()]
    names = [n for n in names if draft.value(n) is not None]
    parts = draft.rng.sample(names, min(len(names), draft.pick((1, 2, 3, 4, 6)))) or ["x0"]
    made = [n for n in matrices(draft) if n[0] == "s"]
    if made and draft.chance(0.6):
        parts.append(draft.pick(made))
    form = draft.pick(("{},", "{},", "[{}]", "({},)", "{{'a': [{}]}}"))
    return f"return {form.format(', '.join(parts))}"


def _assembled(seed: int, frame: SparseFrame, lines: list[str]) -> str:
    """Put the module together."""
    body = "\n".join(lines)
    code(body.rpartition("return ")[0])  # a text that does not compile is an error here
    imports = ["import warnings"] * ("warnings." in body)
    imports += ["import numpy as np", "import scipy.sparse as sp"]
    imports += ["from scipy import special"] * ("special." in body)
    return "\n".join([
        f'"""Sparse program {seed}."""', *imports, "",
        "from tests.fuzz.arrays import window", "from tests.fuzz.matrices import alike, matrix", "", "",
        f"@jit\ndef f({', '.join(frame.given)}, log):\n{indent(body, '    ')}\n", "",
        frame.makers(body), "",
    ])


generate = Families("sparse ", _first, _assembled)
