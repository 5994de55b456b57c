"""Rare random statements: masks, indices, views of views, containers, error states, other dtypes."""

from __future__ import annotations

from textwrap import indent

from tests.fuzz.draft import Draft
from tests.fuzz.expressions import FLOAT_UNARY, INEXACT_CALLS, array_expression, number, place, view

# Masks, indices, views of views, containers, error states

CALLS = ("np.add", "np.multiply", "np.subtract", "np.maximum", "np.minimum", "np.divide")


def masked(draft: Draft) -> str | None:
    """Write where a mask says, through `where=`, a mask as an index, or a copy."""
    target = place(draft)
    held = target and draft.value(target)
    if held is None:
        return None
    a, n = target, number(draft)
    value = array_expression(draft, 1, held) or n
    mask = f"{place(draft, held) or a} {draft.pick(('<', '>', '!='))} {draft.pick(('0', '0.5', '1'))}"
    name = draft.new_name()
    return draft.pick((
        f"{draft.pick(CALLS)}({a}, {value}, out={a}, where={mask})",
        f"{name} = {draft.pick(CALLS)}({a}, {n}, out={a}.copy(), where={mask})",
        f"np.copyto({a}, {value}, where={mask}, casting='unsafe')",
        f"np.putmask({a}, {mask}, {value})",
        f"{a}[{mask}] {draft.pick(('+=', '*=', '-='))} {n}",
        f"{a}[{mask}] = {a}[{mask}] * 2",
        f"{name} = {a}[{mask}]",
        f"{name} = np.sum({a}, where={mask})",
        f"{name} = np.where({mask}, {value}, {a})",
        f"np.sqrt(np.abs({a}), out={a}, where={mask})",
        f"{a}[...] = np.where({mask}, {a}, {value})",
        f"{name} = np.select([{mask}, {a} > 2], [{a}, {value}], 0)",
    ))


def indexed(draft: Draft) -> str | None:
    """Read and write through arrays of indices."""
    target = place(draft)
    held = target and draft.value(target)
    if held is None or held.ndim == 0:
        return None
    a, n, name = target, number(draft), draft.new_name()
    index = draft.pick(("[0, -1]", "[0, 0]", "np.array([0, -1])", f"np.arange({a}.shape[0])[::-1]",
                        f"np.arange({a}.shape[0]) // 2", "[]"))
    forms = [
        f"{a}[{index}] = {n}", f"{a}[{index}] += {n}", f"np.add.at({a}, {index}, {n})",
        f"{name} = {a}[{index}] * 2", f"{name} = np.take({a}, {index}, axis=0)",
        f"{a}[{index}] = {a}[{index}] * 0.5", f"{name} = {a}[np.argsort({a}, axis=None)[:99] % {a}.shape[0]]",
        f"{name} = {a}[{index}]; {name} += {n}", f"{a}[{a}.shape[0] - 1] = {a}[0]",
    ]
    if held.ndim == 2:
        forms += [f"{a}[:, {index}] = {n}", f"{a}[0, [0, -1]] += {n}", f"{name} = {a}[[0, -1], [0, -1]] + 1",
                  f"np.fill_diagonal({a}, {n})", f"{name} = {a}.diagonal() * 2"]
    return draft.pick(forms)


def nested_view(draft: Draft) -> str | None:
    """Write through a view of a view, and read the array below it."""
    source = place(draft)
    first = source and view(draft, source)
    second = first and view(draft, first)
    if second is None or draft.value(second) is None:
        return None
    name, other, n = draft.new_name(), draft.new_name(), number(draft)
    return draft.pick((
        f"{name} = {second}\n{name} *= {n}\n{other} = {source} + 1",
        f"{name} = {source} * 1\n{other} = {name}[1:][::-1]\n{other}[...] = {n}\n{name} += 1",
        f"{name} = {first}\n{other} = {second}\n{other} += {n}\n{name} -= {n}",
        f"{name} = {first}\n{source} *= {n}\n{other} = {name} + {n}",
        f"{name} = {source} + {n}\n{other} = {name}.T\n{name} *= 2\nlog.append({other})",
        f"{name} = {source}.copy()\n{other} = {name}[..., ::2]\n{name}[...] = {other}[..., :1]",
        f"{name} = np.zeros({source}.shape)\n{name}[:1] = {n}\n{name}[1:] = 2\n{other} = {name} * {source}",
        f"{name} = np.zeros_like({source})\n{other} = {name}[1:]\n{other} += {source}[1:]",
        f"{name} = {source}[...]\nnp.multiply({source}, {n}, out={name}, casting='unsafe')",
    ))


def contained(draft: Draft) -> str | None:
    """Keep arrays in lists, tuples, dictionaries, objects; work on them there."""
    a, b = place(draft), place(draft)
    if a is None or b is None:
        return None
    q, name, n = draft.new_name("q"), draft.new_name(), number(draft)
    return draft.pick((
        f"{q} = [{a} * {n}, {b} + 1]\n{q}[0] += 1\n{name} = {q}[0]\n{q}.reverse()\nlog.append({q}[0])",
        f"{q} = {{'a': {a} + {n}, 'b': {b}}}\n{q}['a'] -= {n}\n{name} = {q}.pop('a')",
        f"{q} = ({a} - {n}, {b})\n{name}, {name}b = {q}\n{name} *= 2\nlog.append({q})",
        f"{q} = Box(a={a} * {n}, b={b})\n{q}.a += 1\n{q}.b = {q}.a\n{q}.b *= {n}\n{name} = {q}.a",
        f"{q} = []\nfor {name}i in range(3):\n    {q}.append({a} * {name}i)\n{name} = sum({q})",
        f"{q} = [{a} + {n}] * 2\n{q}[0] += 1\n{name} = {q}[1]",
        f"{q} = list({a} + {n})\n{name} = np.array({q})",
        f"{q} = dict(p, c={a} * 2)\n{q}['c'] += {n}\n{name} = {q}['c'] + {q}['b']",
        f"{name} = max([{a} * {n}, {a} + 1], key=lambda t: float(np.sum(t)))",
        f"{name} = [{a} * {n} for _ in range(2)][0]\n{name} += {n}",
        f"self.count = getattr(self, 'count', 0) + 1\nself.w = self.w * self.rate\n{name} = self.w",
        f"{name} = {a} * {n}\nif {name} is not None and {name}.ndim:\n    {name}[0] = {n}",
        f"*{q}, {name} = {a} * {n}, {b} - 1",
        f"{name} = (lambda *t, **k: t[0] * k['s'])({a}, s={n})",
    ))


def guarded(draft: Draft) -> str | None:
    """Compute under an error state, in a `with`, or with a handler."""
    a, name, n = place(draft), draft.new_name(), number(draft)
    if a is None:
        return None
    return draft.pick((
        f"with np.errstate(all='ignore'):\n    {name} = {a} / ({a} - {n})",
        f"with np.errstate(divide='ignore', invalid='ignore'):\n    {name} = np.sqrt({a}) / {a}",
        # What errstate and filters make of warnings is left out: documented to differ.
        f"try:\n    {name} = {a} * {n}\n    {a}.reshape(-1, 7919)\nexcept ValueError:\n    {name} = {a} - 1",
        f"try:\n    {name} = {a} + 1\nfinally:\n    log.append({n})",
        f"try:\n    {a} += 1\n    {a}[10 ** 6]\nexcept IndexError:\n    {name} = {a} * {n}",
        f"{name} = {a} * {n}\nassert {name}.shape == {a}.shape",
    ))


def crossed(draft: Draft) -> str | None:
    """Write through `out=` and `where=` where what is read and what is written overlap."""
    target = place(draft)
    held = target and draft.value(target)
    if held is None or held.ndim == 0:
        return None
    a, n, name, other = target, number(draft), draft.new_name(), draft.new_name()
    call, value = draft.pick(CALLS), place(draft, held) or target
    mask = f"{a} {draft.pick(('<', '>', '!='))} {draft.pick(('0', '0.5', '1'))}"
    return draft.pick((
        f"{call}({a}[1:], {a}[:-1], out={a}[1:])",
        f"{call}({a}[:-1], {n}, out={a}[1:])",
        f"{call}({a}, {a}[::-1], out={a}, where={mask})",
        f"{call}({a}[:-1], {n}, out={a}[1:], where=({mask})[1:])",
        f"{call}({a}[::-1], {value}, out={a}, where=({mask})[::-1])",
        f"np.copyto({a}[::-1], {a}, where={mask})",
        f"np.copyto({a}, {n}, where={a}.astype(bool), casting='unsafe')",
        f"np.cumsum({a}, axis=0, out={a})",
        f"np.add.accumulate({a}, axis=0, out={a}[::-1])",
        f"np.negative({a}[1:], out={a}[:-1])",
        f"np.add.reduce({a}, axis=0, out={a}[0, ...])",
        f"{name} = np.divide({a}, {value}, out=np.zeros({a}.shape), where={value} != 0)",
        f"{name} = {a} + {n}\nnp.multiply({name}[1:], {name}[:-1], out={name}[:-1])",
        f"{name} = np.empty_like({a})\n{other} = {call}({a}, {n}, out={name})\n{other} -= 1",
        f"{name} = np.empty({a}.shape)\n{name}[...] = {a}\n{call}({name}, {value}, {name}, where={name} > 0)",
        f"{name}, {other} = np.divmod({a}, 3)\n{name} += {other}",
        f"{name} = {a}.copy()\nnp.divmod({name}, 2, out=({name}, {name}[::-1].copy()))",
        f"{name}, {other} = np.modf({a} * 0.75)",
        f"{name} = np.zeros({a}.shape)\nnp.modf({a} * 0.75, out=({name}, np.zeros({a}.shape)))",
        f"{name} = np.add({a}, {n}, dtype='f8')\nnp.add({name}, {a}, {name}[...], casting='unsafe')",
        f"{a}[...], {name} = {a}[::-1], {a} * {n}",
        f"{name} = np.sum({a}, axis=0, where={mask})\n{other} = np.max({a}, initial=0, where={mask})",
        f"{a} += {a}[:1]",
        f"{a} *= {a}[-1:] + {n}",
        f"{a}[::2] = {a}[::-1][::2]",
        f"{a}[...] = {a} + {a}[:1] * {n}",
    ))


def scattered(draft: Draft) -> str | None:
    """Write through indices that repeat, masks of parts, grids of indices, `put` and `at`."""
    target = place(draft)
    held = target and draft.value(target)
    if held is None or held.ndim == 0 or not held.size:
        return None
    a, n, name, length = target, number(draft), draft.new_name(), f"{target}.shape[0]"
    index = draft.pick(("[0, 0, -1]", f"np.arange({length}) // 2", f"np.arange({length}) % 3 % {length}",
                        f"np.array([0, {length} - 1, 0])", f"np.zeros({length}, int)"))
    forms = [
        f"np.add.at({a}, {index}, {a}[{index}])", f"np.maximum.at({a}, {index}, {n})",
        f"np.subtract.at({a}, {index}, {a}[0])", f"{name} = {a} * {n}\nnp.multiply.at({name}, {index}, 2)",
        f"{name} = {a} + {n}\n{name}[{index}] += {name}[0]\n{name}[0] = {n}",
        f"{a}[{index}] = {a}[::-1][{index}]", f"{name} = {a}[{index}][1:]\n{name} *= {n}",
        f"{a}[np.nonzero({a} > {n})] = {n}", f"{a}[{a} > 0] += {a}[{a} > 0]", f"{a}[{a} < 0] *= -1",
        f"np.put({a}, [0, -1], {n})", f"np.place({a}, {a} > 1, [{n}, 2])", f"{a}.flat[::2] = {n}",
        f"{a}.flat[0] = {n}", f"{name} = {a}[{index}]\n{a}[{index}] = {n}\n{name} = {name} - {a}[{index}]",
        f"{name} = np.bincount(np.arange({length}) % 3, minlength=4) * {n}",
        f"{name} = ({a} * {n})[{index}] + {a}[{index}]", f"{name} = {a}[[True] * {length}] - {n}",
        f"{name} = np.zeros(3)\nnp.add.at({name}, np.arange({length}) % 3, {a}.reshape({length}, -1)[:, 0])",
        f"{a}[{a} != {a}] = 0", f"{name} = {a}.copy()\n{name}[{name} > {n}] = {name}.max()",
    ]
    if held.ndim == 2:
        forms += [f"{a}[np.ix_([0, -1], [0])] *= 2", f"{a}[[0, -1]][:, 0] = {n}", f"{a}[{a}[:, 0] > 0] = {n}",
                  f"{a}[:, {a}[0] > 0] += {n}", f"{a}[{a}[:, 0] > 0, 0] = {n}",
                  f"{name} = np.take_along_axis({a}, np.argsort({a}, axis=1, kind='stable'), axis=1)",
                  f"np.add.at({a}, ({index}, 0), {n})", f"{a}[{index}, -1] -= {n}",
                  f"{name} = {a}[np.arange({length}), {a}.argmax(axis=1)] * {n}",
                  f"{a}[np.triu_indices(min({a}.shape))] = {n}"]
    return draft.pick(forms)


def looked_up(draft: Draft) -> str | None:
    """Read tables, keep rows, count and add up by labels of every kind; some name nothing."""
    target = place(draft)
    held = target and draft.value(target)
    if held is None or held.ndim == 0 or not held.size:
        return None
    a, n, name, bins = target, number(draft), draft.new_name(), draft.rng.randint(1, 6)
    kind = draft.pick(("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "i8", "u1"))
    least = draft.rng.randint(0, 2)
    few = draft.pick((f"np.arange({a}.size) * 7 % {bins}", f"np.arange({a}.size) % 3 - {least}",
                      f"np.clip(np.nan_to_num(np.real({a})), 0, {bins}).ravel()"))
    labels = f"({few}).astype('{kind}')"
    table = draft.pick((f"np.arange({bins}.) * {n}", f"np.arange({bins + 1}, dtype='u1')", f"{a}", f"{a}.T",
                        f"np.ones(({bins}, 3))", f"{a}.ravel() + {n}"))
    mask = draft.pick((f"{a} > {n}", f"{a} == {a}", f"np.ravel({a} < 1)", f"({a} > 0)[:, ...]"))
    return draft.pick((
        f"{name} = ({table})[{labels}]", f"{name} = ({table})[{labels}.reshape({a}.shape)]",
        f"{name} = np.take({table}, {labels}, axis=0) * {n}", f"{name} = ({table}).take({labels} * 1)",
        f"{name} = np.bincount({labels} + 0, minlength={bins})",
        f"{name} = np.bincount({labels} * 1, np.real({a}).ravel(), {bins})",
        f"{name} = np.bincount({labels} * 1, weights=({a} > 0).ravel())",
        f"{name} = np.bincount(({a} > {n}).ravel(), minlength=2)",
        f"{name}, _ = np.histogram({a} * 1, bins={bins})", f"{name} = np.count_nonzero({a} > {n}) * 2",
        f"{name} = np.count_nonzero({a}, axis={draft.rng.randint(-1, 0)}) + np.count_nonzero({a} * {n})",
        f"{name}, _ = np.histogram(np.real({a}) * {n}, {bins}, (-1.0, {bins}))",
        f"{name} = np.zeros({bins + 1})\nnp.add.at({name}, {labels}, {n})\n{name} *= 2",
        f"{name} = np.zeros({bins})\nnp.add.at({name}, {labels}, np.real({a}).ravel() * 1.5)",
        f"{name} = np.arange({bins + 1}) + 0\nnp.add.at({name}, {labels} * 1, 2)",
        f"{name} = ({a} * {n})[{mask}]", f"{name} = {a}[{mask}].sum() + {n}",
        f"{name} = ({a} + {n})[{a}.ravel()[:{a}.shape[0]] > {n}]", f"{name} = {a}[{mask}].mean()",
    ))


def selected(draft: Draft) -> str | None:
    """Read columns where one mask or one index says, compute with them, and add up by label."""
    target = place(draft)
    held = target and draft.value(target)
    if held is None or held.ndim == 0 or not held.size:
        return None
    a, n, bins = target, number(draft), draft.rng.randint(1, 6)
    k, u, v, w, g = (draft.new_name() for _ in range(5))
    kind = draft.pick(("i1", "u2", "i4", "i8", "i8"))
    key = draft.pick((f"{u} > {n}", f"{u} == {u}", f"{u} != {u}", f"np.arange({u}.size) * 5 % {u}.size",
                      f"-1 - np.arange({u}.size) // 2", f"np.arange({u}.size) % 3 < 1"))
    head = (f"{u} = np.real({a}).ravel() * 1\n{v} = {u} - {n}\n{k} = {key}\n"
            f"{g} = (np.arange({u}.size) % {bins}).astype('{kind}')\n")
    return head + draft.pick((
        f"{w} = {u}[{k}] * {n} + {v}[{k}]", f"{w} = ({u}[{k}] - {v}[{k}]).sum() + {u}[{k}].size",
        f"{w} = {u}[{k}]\n{v} = {v}[{k}]\n{w} *= {v}", f"{w} = {u}[{k}]\n{u}[:1] = {n}\n{v} = {u}[{k}] - {w}",
        f"{w} = {u}[{k}] * 2\n{k}[:1] = {k}[-1]\n{v} = {u}[{k}] + {v}[{k}]",
        f"{u}[...] = {u}[np.arange({u}.size)[::-1] * 1] * {n}\n{w} = {u}[{k}]",
        f"{w} = np.sqrt(np.abs({u}[{k}]))\n{v} = np.maximum({v}[{k}], {w}).astype('f4')",
        f"{w} = np.bincount({g}[{k}], {u}[{k}] * {n}, {bins})\n{v} = np.bincount({g}[{k}], minlength={bins})",
        f"{w} = np.bincount({g}[{k}], {u}[{k}])\n{v} = np.bincount({g}, {v} * {n}, minlength=2) * 2",
        f"{g} = {g}[{k}]\n{v} = {u}[{k}] * {n}\n"
        f"{w} = np.bincount({g}, {v}, {bins}) / (np.bincount({g}, weights={v} + 1, minlength={bins}) + {n})",
        f"{w} = np.bincount({g}[{k}] - 1, {u}[{k}])",
        f"{w} = np.bincount({g}[{k}], {u}[{k}] > {n}, {bins + 2})",
        f"{w} = np.bincount({g} * 1, {u} + {n})\n{g}[:1] = {bins}\n{v} = np.bincount({g} + 0, {u} * {n})",
    ))


def stacked_views(draft: Draft) -> str | None:
    """Write through three views of one array in turn, and read each in between."""
    source = place(draft)
    held = source and draft.value(source)
    if held is None or held.ndim == 0:
        return None
    a, n = source, number(draft)
    u, v, w = (draft.new_name() for _ in range(3))
    base = draft.pick((f"{a}", f"{a} * 1", f"{a}.copy()", f"{a} + {n}", f"np.zeros({a}.shape)"))
    one, two = (draft.pick(("[1:]", "[::2]", "[::-1]", "[...]", "[:-1]", ".reshape(-1)", ".T")) for _ in "ab")
    head = f"{u} = {base}\n{v} = {u}{one}\n{w} = {v}{two}\n"
    return head + draft.pick((
        f"{w} += {n}\n{v} *= 2\n{u}[0] = {n}",
        f"{u} += {n}\n{w}[...] = {v}[0] if {v}.size else 0\n{v} -= 1",
        f"{w} *= {n}\nlog.append(float(np.sum(np.abs({u}))))\n{v} += 1\n{u} = {u} + {w}[:1]",
        f"log.append({w} * 2)\n{u} -= {n}\nlog.append({v} + 1)\n{v} *= 2",
        f"{v}[{v} > 0] = {n}\n{w} += 1\n{u} *= 0.5 if {u}.dtype.kind in 'fc' else 2",
        f"for i in range(3):\n    {w} += 1\n    {v} *= 2\n    {u}[:1] = i",
        f"{u}[...] = {u}[::-1]\n{v} += {v}[::-1]\n{w} = {w} * {n}",
        f"{v}[...] = {n}\n{w}[:1] = 2\n{u} = {u} * {u}",
    ))


INEXACT_UNARY = tuple(FLOAT_UNARY)
NUMPYS_UNARY = tuple(name for name in FLOAT_UNARY if name.startswith("np."))
NUMPYS_CALLS = tuple(name for name in INEXACT_CALLS if name.startswith("np."))
ENDS = (
    "np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, 2, 1e300, 5e-324, -1e-310])",
    "np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, 3, 1e30, -1e-40], np.float32)",
    "np.linspace(-745, 745, 37)", "np.linspace(-104, 104, 41, dtype='f4')", "np.linspace(0, 1, 33)",
    "np.arange(-5, 6)", "np.array([0.5, -1, 1.5, np.inf, 0], np.float16)",
)


def inexact(draft: Draft) -> str | None:
    """Call functions whose last bits are open: with `out=`, `where=`, dtypes, scalars, special values."""
    found = draft.arrays(lambda a: a.dtype.kind == "f" and a.size < 5000)
    if draft.exact or not found:
        return None
    a, n, name, other = draft.pick(found), number(draft), draft.new_name(), draft.new_name()
    b = place(draft, draft.value(a)) or a
    f, g, ends = draft.pick(INEXACT_UNARY), draft.pick(INEXACT_CALLS), draft.pick(ENDS)
    mask = f"{a} {draft.pick(('<', '>', '!='))} {draft.pick(('0', '0.5', '1'))}"
    # With `where=` SciPy 1.17's own functions write beyond their memory.
    fw, gw = draft.pick(NUMPYS_UNARY), draft.pick(NUMPYS_CALLS)
    return draft.pick((
        f"{name} = {f}({ends})\n{other} = {name} * 2",
        f"{name} = {ends}\n{other} = {g}({name}[:, None], {name})",
        f"{name} = {ends}\n{other} = {g}({name}, {n}) + {g}({n}, {name})",
        f"{name} = {ends}\n{other} = {name}[:, None] ** {name}",
        f"{name} = {f}({a}, out={a} * 1)",
        f"{name} = {a} * 1\n{fw}({name}, out={name}, where={mask})",
        f"{f}({a}, out={a}[::-1])",
        f"{name} = {g}({a}, {b}, out={a} + 0)",
        f"{name} = {gw}({a}, {b}, where={mask}, out=np.ones({a}.shape))",
        f"{gw}({a}, {n}, out={a}, where={mask})",
        f"{name} = {f}({a}, dtype='f8')",
        f"{name} = {f}({a}.astype('f4'))\n{other} = {g}({name}, {n})",
        f"{name} = {f}(float({a}.size)) * {a}",
        f"{name} = {f}(np.sum({a})) + {g}({a}.max() if {a}.size else 0, {n})",
        f"{name} = {g}({n}, {a}[..., -1:]) * {a}",
        f"{name} = {f}({a}.astype('f2')) + {g}({a}.astype(np.float16), np.float16(0.5))",
        f"{name} = {f}({a} * 1e3) - {g}({a} * 1e2, {b})",
        f"{name} = {a}.copy()\n{name} **= {draft.pick(('1.5', '-0.5', '3', n))}",
        f"{name} = {n} ** {a}\n{other} = np.abs({a}) ** {b}",
        f"{name} = {g}({a}, {b})\n{other} = {g}({a}[..., ::-1], {b})",
        f"{name} = {f}({g}({a}, {b}) * {n}).sum()",
        f"{a}[...] = {f}({a})\n{a} += {g}({a}, {n})",
        f"{name} = {g}.outer(np.ravel({a})[:20], np.ravel({b})[:20])",
        f"{name} = np.where({mask}, {f}({a}), {g}({a}, {n}))",
        f"{name} = np.logaddexp.reduce({a}, axis=-1)\n{other} = np.hypot.reduce(np.abs({b}))",
    ))


UNUSUAL = {
    masked: 5, indexed: 3, nested_view: 5, contained: 5, guarded: 2, crossed: 3, scattered: 3,
    stacked_views: 3, inexact: 4, looked_up: 6, selected: 6,
}


def unusual(draft: Draft) -> str | None:
    """Draw one of these statements; it has not run."""
    return draft.weighted(UNUSUAL)(draft)


# Arrays of numbers with dates, text, objects, records, subclasses

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
