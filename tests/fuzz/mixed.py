"""Random statements that mix arrays of numbers with dates, text, objects, records, subclasses."""

from __future__ import annotations

from textwrap import indent

from tests.fuzz.draft import Draft
from tests.fuzz.expressions import number

# {y}: the value; {a}: an array as long; {n}: a number; {v}: a new array; {w}: a new value as {y}.
DATES = (
    "{v} = ({y} - {y}[:1]) / np.timedelta64(1, 'D') + {a}",
    "{w} = {y} + np.nan_to_num({a}).astype('i8').astype('m8[D]')",
    "{v} = np.where({y} > {y}[:1], {a}, {n})",
    "{v} = {a}[np.argsort({y}, kind='stable')] * {n}",
    "{v} = {a} * ({y}.astype('i8') % 7)",
    "{v} = np.isnat({y}) * {a}",
    "{w} = np.sort({y})[::-1]",
    "{y}[1:] = {y}[:-1]",
    "{y} += np.timedelta64(2, 'D')",
    "{a} += ({y} == {y}[:1])",
    "log.append({y}[{a} > 0])",
    "{y}[{a} > 1] = np.datetime64('NaT')",
    "{v} = {a} + ({y}.view('i8') % 5)",
    "log.append([str(t) for t in {y}[:3]])",
    "{v} = ({y} >= np.datetime64('2020-03-01')) & ({a} > 0)",
    "{w} = np.where({a} > 0, {y}, {y}[::-1])",
    "{v} = {a}[{y}.argmin()] * {n}",
    "{w} = {y}.astype('M8[M]')",
)
SPANS = (
    "{w} = {y} * {a}",
    "{w} = {a} * {y}",
    "{v} = {y} / np.timedelta64(60, 's') - {a}",
    "{v} = {y} / (np.abs({y}) + np.timedelta64(1, 's')) * {a}",
    "log.append({y}.sum())",
    "{y} *= 2",
    "{y} //= 2",
    "{w} = np.abs({y}) % np.timedelta64(7, 's')",
    "{v} = ({y} > np.timedelta64(0, 's')) * {a}",
    "{w} = {y} + np.timedelta64(1, 'm')",
    "log.append({y}.max() if {y}.size else None)",
    "{a} += {y}.astype('f8')",
    "{w} = np.maximum({y}, {y}[::-1])",
    "{v} = {y}.astype('i8') + {a}",
)
TEXT = (
    "{v} = ({y} == {y}[:1]) * {a}",
    "{w} = np.char.add({y}, {y}[:1])",
    "{v} = np.char.str_len({y}) + {a}",
    "{v} = np.unique({y}, return_inverse=True)[1] * 2.5",
    "log.append({y}[{a} > 0])",
    "{v} = {a}[{y} > {y}[:1]] * 2",
    "{y}[:1] = {y}[-1:]",
    "{w} = np.where({a} > 0, {y}, {y}[:1])",
    "log.append([len(t) for t in {y}])",
    "{q} = {{t: {a} * {n} for t in {y}.tolist()}}\nlog.append(sorted({q}))\n{v} = sum({q}.values())",
    "log.append((np.round({a}, 1)).astype('U6'))",
    "{a}[{y} != {y}[:1]] = {n}",
    "log.append(f'{{len({y})}} {{float(np.sum({a})):.3g}}')",
)
OBJECTS = (
    "{w} = {y} + {a}",
    "{w} = {a} * {y}",
    "{v} = {y}.astype('f8') - {a}",
    "{w} = {y} * {n}",
    "log.append({y}.sum())",
    "{v} = np.array([float(t) for t in {y}]) + {a}",
    "{q} = np.empty(2, object)\n{q}[0] = {a} * {n}\n{q}[1] = {a}\nlog.append({q})",
    "{q} = np.empty(2, object)\n{q}[:] = [{a} + 1, None]\n{q}[0] *= 2\n{v} = {q}[0]",
    "{y}[:1] = {n}",
    "{a}[{y} > 0] = {n}",
    "{y}[...] = {a}",
    "{y} += {a}",
    "{a} += {y}",
    "log.append(sorted({y}.tolist()))",
    "{v} = np.where({y} > 0, {a}, {n})",
    "{w} = np.maximum({y}, {a})",
    "{v} = ({y} == {a})",
    "{w} = ({a} * 2).astype(object)",
    "log.append([({a} * 2).tolist(), {y}.tolist()])",
    "{w} = np.array([{n}, None, 'x'], object)\nlog.append({w} == None)",
)
RECORDS = (
    "{v} = {y}['a'] * {a}",
    "{y}['a'] += {a}",
    "{y}['b'] = 3",
    "{y}['a'][1:] -= {n}",
    "{v} = {y}['c'][:, 0] + {y}['c'].sum(axis=1)",
    "{y}['a'] = {a}",
    "{w} = {y}[{a} > 0]",
    "log.append(np.sort({y}, order='b')['b'])",
    "{y}[:1] = (1.0, 2, (3.0, 4.0))",
    "{v} = {y}['a'] / (np.abs({y}['b']) + 1)\n{y}['a'][...] = {v}",
    "for {q} in {y}[:3]:\n    {q}['a'] *= 2",
    "{w} = {y}[['a', 'b']]\nlog.append({w}.dtype.names)",
    "{w} = {y}.copy()\n{w}['c'] *= {n}",
    "{v} = {y}['c']\n{v} += {n}",
    "log.append(float({y}['a'].sum()))",
    "{q} = {y}.view(np.recarray)\n{v} = {q}.a * {n} + {q}.b",
)
MASKED = (
    "{w} = {y} * {a}",
    "{w} = {a} + {y}",
    "{v} = {y}.filled(0) + {a}",
    "{v} = {y}.data * {n} - {a}",
    "{w} = np.ma.masked_where({a} > 0, {a} * 2)",
    "{y}[:1] = np.ma.masked",
    "{y} += {a}",
    "{a} += {y}.filled(1)",
    "log.append({y}.sum())",
    "log.append({y}.mean())",
    "{w} = np.ma.array({a} * 2, mask={a} > 1)",
    "{w} = np.ma.sqrt({a})",
    "{w} = np.add({a}, {y})",
    "{v} = np.where(np.ma.getmaskarray({y}), {a}, {n})",
    "{w} = {y}[{a} > 0]",
    "{y}[{a} > 0] = {n}",
    "{w} = np.maximum({y}, {a})",
    "log.append(({y} > {a}).any())",
    "{v} = {y}.compressed() * {n}",
    "{v} = {a} * {y}.mask",
)
TAGGED = (
    "{w} = {y} + {a}",
    "{w} = {a} - {y}",
    "{w} = np.sqrt(np.abs({y}))",
    "{y}[1:] += {n}",
    "{y} *= {a}",
    "{a} += {y}",
    "{v} = np.asarray({y}) + {a}",
    "{w} = ({a} * {n}).view(Tagged)\n{w}.label = 'made'",
    "{w} = np.where({a} > 0, {y}, {a})",
    "{w} = np.concatenate([{a}, {y}])",
    "np.add({a}, {n}, out={y})",
    "np.multiply({y}, {n}, out={a})",
    "log.append({y}.label)",
    "log.append({y}.sum())",
    "log.append(np.mean({y}))",
    "{w} = {y}[{a} > 0]",
    "{y}[...] = {a} * 2",
    "{v} = {y}.view(np.ndarray)\n{v} *= {n}",
    "{w} = np.maximum({a}, {y})[::-1]",
)
ODD_FLOATS = (
    "{v} = np.float64({n}) * {a} + {y}.astype('f8')",
    "{w} = {y} + {a}",
    "{w} = {a} * {y}",
    "{a} += {y}",
    "{y} *= 2",
    "{y}[...] = {a} - {n}",
    "{w} = {y} * {n}",
    "{w} = np.maximum({y}, {a})",
    "{v} = ({y} > {a}) * {n}",
    "{v} = np.where({y} > 0, {a}, {n})",
    "log.append({y}.sum())",
    "log.append({y}.mean())",
    "{w} = {y}[::-1][1:]\n{w} += 1",
    "np.add({y}, {n}, out={a}, casting='unsafe')",
    "{w} = {a}.astype({y}.dtype)",
    "{v} = {y}[:1] < {y}",
)
MATRIX = (
    "{w} = {y} * {y}.T",
    "{v} = np.asarray({y} + 1).ravel() * {n}",
    "{w} = {y} @ (np.arange({y}.shape[1]) * 0.5)",
    "{y} += {n}",
    "log.append({y}.sum())",
    "{v} = {y}.A1 * {n}",
    "{w} = np.abs({y}) * {n}",
    "{w} = {y}[:1] - {n}",
)
SPARSE = (
    "{v} = {y} @ (np.arange({y}.shape[1]) * 0.5)",
    "{v} = ({a} * {n}) @ {y}",
    "{v} = {y}.T @ ({y} @ (np.ones({y}.shape[1]) * {n}) * {a})",
    "{v} = {y}.T @ ({a} * 2)",
    "{v} = {y}.toarray() * {n}",
    "log.append({y}.sum())",
    "{v} = np.asarray({y}.sum(axis=1)).ravel() * {a}",
    "{v} = np.asarray({y}.sum(axis=0)).ravel() + 1",
    "{w} = {y} * 2.5",
    "{y}.data *= 2",
    "{v} = {y}.data * {n}",
    "{w} = {y}.multiply({a}[:, None])",
    "{w} = {y}.T.tocsr() @ {y}",
    "{w} = abs({y}) + {y}",
    "log.append({y}.nnz + {y}.shape[0])",
    "{v} = ({y} @ np.eye({y}.shape[1])) - {a}[:, None]",
    "{v} = np.linalg.norm({y}.toarray(), axis=1) + {a}",
)
FORMS = {
    "dates": DATES, "spans": SPANS, "text": TEXT, "bytes": TEXT[:1] + TEXT[2:8], "objects": OBJECTS,
    "records": RECORDS, "masked": MASKED, "tagged": TAGGED, "swapped": ODD_FLOATS, "long": ODD_FLOATS,
    "half": ODD_FLOATS, "matrix": MATRIX, "csr": SPARSE, "csc": SPARSE, "coo": SPARSE, "rows": SPARSE,
}
CAUGHT = "(TypeError, ValueError, IndexError, AttributeError, NotImplementedError)"


def mixed(draft: Draft) -> str | None:
    """Draw a statement with one of the values that are no plain arrays of numbers."""
    if not draft.foreign:
        return None
    y = draft.pick(list(draft.foreign))
    held = draft.value(y)
    length = held.shape[0]
    fitting = draft.arrays(lambda a: a.shape == (length,) and a.dtype.kind in "fi")
    a = draft.pick(fitting) if fitting and draft.chance(0.9) else f"(np.arange({length}.0) - 2)"
    form = draft.pick([t for t in FORMS[draft.foreign[y]] if fitting or "{a}[" not in t and "{a} +" not in t])
    names = {letter: draft.new_name(letter) for letter in "vwq"}
    text = form.format(y=y, a=a, n=number(draft), **names)
    # Mixtures raise for reasons of their own: the same reasons on both sides.
    return f"try:\n{indent(text, '    ')}\nexcept {CAUGHT} as e:\n    log.append(type(e).__name__)"
