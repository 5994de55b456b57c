"""Random statements about sparse matrices of SciPy, mixed with dense arrays."""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import indent
from typing import Any

import numpy as np
import scipy.sparse as sp

from tests.fuzz.draft import Draft
from tests.fuzz.expressions import number

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
