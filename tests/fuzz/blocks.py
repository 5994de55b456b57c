"""Random statements with a body: branches, loops, handlers, functions, floating-point errors."""

from __future__ import annotations

import re
from textwrap import indent

import numpy as np

from tests.fuzz.draft import Draft
from tests.fuzz.expressions import array_expression, number, place, reduction
from tests.fuzz.statements import simple, steady

# Functions: closures, generators, recursion, classes

# {a}: an array, {b}: one that broadcasts to it, {n}: a number, {g}: a new function, {v}: a new array.
CLOSURES = (
    "def {g}(t, s={n}):\n    u = t * s + {a}\n    return u - 1\n{v} = {g}({a})",
    "{v} = {a} * {n}\ndef {g}(t):\n    return t + {v}\n{v} = {g}({b}) - {v}\n{w} = {g}({a})",
    "def {g}(t):\n    c = t * {n}\n    def inner(u):\n        nonlocal c\n        c = c + u\n"
    "        return c - 1\n    inner({b})\n    return inner(t), c\n{v}, {w} = {g}({a})",
    "def {g}(t):\n    c = t * 1\n    def inner():\n        nonlocal c\n        c *= {n}\n    inner()\n"
    "    d = c\n    inner()\n    return c + d\n{v} = {g}({a})",
    "{q} = [lambda t: t * k + {n} for k in range(3)]\n{v} = {q}[0]({a}) + {q}[-1]({b})",
    "{q} = [lambda t, k=k: t * k + {n} for k in range(3)]\n{v} = {q}[0]({a}) + {q}[-1]({a})",
    "{g} = lambda t, s={n}: np.where(t > s, t, s)\n{v} = {g}({g}({a}, 1)) - {b}",
    "def {g}(*t, **o):\n    return sum(u * o['s'] for u in t) + o.get('c', 0)\n"
    "{v} = {g}({a}, {b}, s={n}, c={a})",
    "def {g}(t, /, u, *, s):\n    t = t - u\n    return t * s if s else t\n{v} = {g}({a}, {b}, s={n})",
    "def {g}(f):\n    def inner(*t):\n        return f(*t) * 2\n    return inner\n"
    "@{g}\ndef {g}d(t):\n    return t + {n}\n{v} = {g}d({a})",
    "def {g}(t, kept=[]):\n    kept.append(t * {n})\n    return kept[0] + t\n{v} = {g}({a})\n{w} = {g}({b})",
    "def {g}(t):\n    t += {n}\n    return t\n{v} = {g}({a} * 1)\n{w} = {g}({v})\nlog.append({v})",
    "def {g}(t):\n    t = t + 1\n    t[...] = t * {n}\n    return t[::-1], t\n{v}, {w} = {g}({a})\n{v} += 1",
    "def {g}(t):\n    {a}[...] = t\n    return {a} + 1\n{v} = {a} * {n}\n{w} = {g}({v})\n{v} -= {w}",
    "def {g}(t):\n    u = t - {n}\n    return lambda: u * 2\n{q} = {g}({a})\n{v} = {q}() + {q}()",
)
GENERATORS = (
    "def {g}(t):\n    for k in range(3):\n        t = t * 0.5 + k\n        yield t\n{v} = sum({g}({a}))",
    "def {g}(t):\n    yield t + 1\n    t *= 2\n    yield t - 1\n{q} = {g}({a} * 1)\n{v} = next({q})\n"
    "{w} = next({q}) + {v}",
    "def {g}(t):\n    while True:\n        k = yield t * {n}\n        t = t + k\n{q} = {g}({a})\n"
    "{v} = next({q})\n{w} = {q}.send(2) - {v}\n{q}.close()",
    "def {g}(t):\n    try:\n        yield t * {n}\n    finally:\n        t += 1\n{v} = {a} + 0\n"
    "for {q} in {g}({v}):\n    log.append({q})\n    break\n{w} = {v} * 2",
    "def {g}(t):\n    yield from (t * k for k in range(2))\n    yield t\n"
    "{v}, *{q} = {g}({a})\n{w} = {q}[-1] + 1",
    "{v} = sum({a} * k for k in range(3))",
    "{q} = ({a} * k + {n} for k in range(3))\n{a} += 1\n{v} = sum({q})",
    "log.append(max(float((t * 2).sum()) for t in ({a}, {b})))",
    "{v} = np.array([*(float(np.sum(r)) for r in {a})])",
    "log.append(any((t > {n}).any() for t in ({a}, {b} - 1)))",
    "{v} = next(t for t in ({a} - {n}, {a} + 1) if t.size >= 0)",
    "{v} = dict(enumerate({a} * k for k in range(2)))[1]\n{v} += {n}",
    "{q} = list(map(lambda t: t * {n}, ({a}, {b})))\n{v} = {q}[0] - {q}[1]",
    "{v} = functools.reduce(lambda c, d: c * 0.5 + d, [{a}, {b}, {a}])",
    "for {q}, {w} in zip(range(3), ({a}, {b}, {a} * 2)):\n    {v} = {w} * {q} + {n}",
    "{q} = sorted([{a} * {n}, {a} - 1], key=lambda t: float(np.nansum(t)))\n{v} = {q}[0] + {q}[1]",
    "{v} = np.stack([t for t in ({a} * k for k in range(3)) if t is not None])",
    "{q} = {{k: {a} - k for k in 'ab' for k in range(2)}}\n{v} = {q}[0] * {q}[1]",
)
RECURSION = (
    "def {g}(t, d=3):\n    if d == 0 or t.size < 2:\n        return t.sum()\n    h = t.size // 2\n"
    "    return {g}(t[:h], d - 1) + {g}(t[h:], d - 1)\n{v} = {a} * {g}({a}.reshape(-1))",
    "def {g}(t, d):\n    return t if d == 0 else {g}(t * 0.5 + {n}, d - 1)\n{v} = {g}({a}, 4)",
    "def {g}(t, d):\n    t *= 0.5\n    if d:\n        {g}(t[::-1], d - 1)\n{v} = {a} + 0.0\n{g}({v}, 3)",
    "def {g}(t, d):\n    if d:\n        yield t\n        yield from {g}(t + {n}, d - 1)\n"
    "{v} = sum({g}({a}, 3))",
    "def {g}(t, n):\n    if float(np.sum(np.abs(t))) > n and n < 50:\n        return {g}(t * 0.5, n + 10)\n"
    "    return t - n\n{v} = {g}({a}, 1)",
    "def {g}e(t, d):\n    return t if d == 0 else {g}o(t - {n}, d - 1)\ndef {g}o(t, d):\n"
    "    return t if d == 0 else {g}e(t * 2, d - 1)\n{v} = {g}e({a}, 5)",
)
CLASSES = (
    "class {g}:\n    def __init__(self, t):\n        self.t = t\n    def __add__(self, o):\n"
    "        return {g}(self.t + o.t * {n})\n    def __getitem__(self, k):\n        return self.t[k]\n"
    "{v} = ({g}({a}) + {g}({b}))[...]",
    "class {g}:\n    def __enter__(self):\n        {v} = {a} * 2\n        self.t = {v}\n        return {v}\n"
    "    def __exit__(self, *e):\n        self.t += {n}\nwith {g}() as {v}:\n    {w} = {v} - 1\n"
    "{w} = {w} + {v}",
    "class {g}(dict):\n    def __missing__(self, k):\n        self[k] = {a} * k\n        return self[k]\n"
    "{q} = {g}()\n{v} = {q}[2] + {q}[2]\n{q}[2] += {n}\n{w} = {q}[2]",
    "class {g}:\n    k = {n}\n    @property\n    def twice(self):\n        return self.k * {a} * 2\n"
    "    @classmethod\n    def make(cls, t):\n        return cls.k + t\n{v} = {g}().twice + {g}.make({b})",
    "class {g}:\n    def __init__(self):\n        self.sum = {a} * 0\n    def __call__(self, t):\n"
    "        self.sum += t\n        return self\n{q} = {g}()\n{v} = {q}({b})({a}).sum",
    "class {g}:\n    __slots__ = ('t',)\n{q} = {g}()\n{q}.t = {a} + {n}\n{q}.t *= 2\n{v} = {q}.t",
    "class {g}:\n    def __len__(self):\n        return 2\n    def __getitem__(self, k):\n"
    "        if k > 1:\n            raise IndexError\n        return {a} * k\n"
    "{v} = sum({g}())\n{w}, {q} = {g}()",
    "{v} = self.forward({a})\n{w} = self.last * 2",
    "{v} = self.decay() * 2\nself.v = {v} + 0.5\n{w} = self.decay({n})",
    "{v} = self.shift({n}).v + 1\nself.shift(0.5)",
    "{v} = {a} * self.total\nself.shift(1)\n{w} = {a} - self.total",
    "{v} = self.squash({a}) + Net.squash({b} * 2)",
    "{v} = self({a})\n{w} = self({a}) - {v}",
    "{q} = self.forward\n{v} = {q}({a}) + {q}({b})",
    "for {q} in range(3):\n    self.decay()\n    self.v += {n}\n{v} = self.v * 1",
)
SYNTAX = (
    "match {a}.ndim:\n    case 0:\n        {v} = {a} + 1\n    case 1 | 2:\n        {v} = {a} * {n}\n"
    "    case _:\n        {v} = {a} - {n}",
    "if (({v} := {a} * {n}).sum()) > 0:\n    {v} = {v} - 1",
    "for {q} in range(3):\n    {v} = {a} * {q}\n    if {q} > 1:\n        break\nelse:\n    {v} = {a}",
    "{v} = {w} = {a} + {n}\n{w} += 1",
    "log.append(f'{{{a}.shape}} {{float(np.nansum({a})):.4g}} {{{a}.dtype}}')",
    "{v} = {a} if {a}.size and np.all({a} > 0) else {a} * {n}",
    "try:\n    {v} = {a} * {n}\n    raise KeyError('x')\nexcept KeyError:\n    {v} = {v} + 1\n"
    "else:\n    {v} = 0\nfinally:\n    log.append({v})",
    "{v} = 0 < {a}.sum() < 10",
    "[{v}, ({q}, {w})] = [{a} + 1, ({b}, {a} * {n})]",
    "{q} = {a}\n{q} = {q} * 2\n{q} += {q}\n{v} = {q}",
    "{v} = {a} * 1\n{v}, {v}[...] = {v} + 1, {n}\n{w} = {v} * 2",
    "{q} = slice(None, None, 2)\n{v} = {a}[..., {q}] * {n} if {a}.ndim else {a}",
    "{v} = {a} + {n}\ndel {v}\n{v} = {a} - {n}",
    "while True:\n    {v} = {a} - {n}\n    break",
    "log.append([{a}.shape, {a}.dtype.name, len({a}.shape), isinstance({a} + 1, np.ndarray)])",
    "exec('pass')\n{v} = eval('t * 2', {{'t': {a}}})",
)
KINDS = {CLOSURES: 4, GENERATORS: 4, RECURSION: 2, CLASSES: 4, SYNTAX: 2}


def functional(draft: Draft) -> str | None:
    """Draw a statement that makes functions or classes and calls them."""
    a = place(draft)
    held = a and draft.value(a)
    if held is None or held.ndim and held.shape[0] > 3000:
        return None
    form = draft.pick(draft.weighted(KINDS))
    b = place(draft, held) or a
    names = {letter: draft.new_name(letter) for letter in ("v", "w", "q", "g")}
    return form.format(a=a, b=b, n=number(draft), **names)


# Floating-point errors that are raised, called back, recorded or ignored

# What may warn; {a}: an array of floats, {b}: one that broadcasts to it, {n}: a number.
RISKY = (
    "{a} / {b}", "{a} / ({a} - {a})", "np.sqrt({a})", "np.log({a} - {n})", "{a} * 1e300 * 1e300",
    "({a} + 1) / {b}", "1.0 / {a}", "{a} // {b}", "{a} % {b}", "np.sqrt({a} - 1) + {b}", "{a} + {b}",
    "np.divide({a}, {b})", "np.reciprocal({a})", "{a} - {b} * {n}", "np.exp({a} * 1e4)", "np.arcsin({a})",
    "np.where({a} != 0, {b} / {a}, 0)", "({a} / 0).sum()", "np.divide({a}, {b}, out=np.zeros({a}.shape), "
    "where={b} != 0)",
)
INEXACT = re.compile("exp|log|arc")
# {r}: what may warn; {v}: a new array, {q}: a new name.
FORMS = (
    "try:\n    with np.errstate({e}='raise'):\n        {v} = {r}\n        {w} = {v} + 1\n"
    "except FloatingPointError as e:\n    log.append(str(e))\n    {v} = {a} * 0",
    "try:\n    with np.errstate(all='raise'):\n        {a} += {r0}\nexcept FloatingPointError as e:\n"
    "    log.append(str(e))\n{v} = {a} + 1",
    "{q} = []\nwith np.errstate(all='call', call=lambda kind, flag: {q}.append((kind, flag))):\n"
    "    {v} = {r}\n    {w} = {v} * 2\nlog.append({q})",
    "with np.errstate(all='ignore'):\n    {v} = {r}\n    log.append(float(np.nansum({v})) == 0)",
    "with warnings.catch_warnings(record=True) as {q}:\n    warnings.simplefilter('always')\n"
    "    {v} = {r}\n    log.append(repr(float(np.sum({v})) > 0))\nlog.append([str(t.message) for t in {q}])",
    "with warnings.catch_warnings():\n    warnings.simplefilter('error')\n    try:\n        {v} = {r}\n"
    "    except RuntimeWarning as e:\n        log.append(str(e))\n        {v} = {a} * 0",
    "{q} = np.seterr({e}='raise')\ntry:\n    {v} = {r}\nexcept FloatingPointError:\n    {v} = {a} + 1\n"
    "finally:\n    np.seterr(**{q})",
    "{v} = {a} * 2\ntry:\n    with np.errstate({e}='raise'):\n        {v} -= 1\n        {v} /= {b}\n"
    "        {v} += 1\nexcept FloatingPointError as e:\n    log.append(str(e))\n{w} = {v} * 2",
    "with np.errstate({e}='ignore'):\n    with np.errstate({f}='raise'):\n        try:\n"
    "            {v} = {r}\n        except FloatingPointError as e:\n            {v} = {a}\n"
    "            log.append(str(e))",
    "log.append(sorted(np.geterr().items()))\n{v} = {r}",
    "for {q} in range(3):\n    try:\n        with np.errstate({e}='raise'):\n            {v} = {r} + {q}\n"
    "    except FloatingPointError:\n        {v} = {a} * {q}",
    "def {g}(t):\n    with np.errstate({e}='raise'):\n        return t * {n} + {r}\ntry:\n"
    "    {v} = {g}({a})\nexcept FloatingPointError as e:\n    log.append(str(e))\n    {v} = {a}",
    "@np.errstate({e}='raise')\ndef {g}(t):\n    return t / {b}\ntry:\n    {v} = {g}({a})\n"
    "except FloatingPointError as e:\n    log.append(str(e))\n    {v} = {a}",
)


def troubled(draft: Draft) -> str | None:
    """Draw a statement about floating-point errors."""
    found = draft.arrays(lambda a: a.dtype.kind == "f" and a.dtype.itemsize > 2 and a.size < 5000)
    if not found:
        return None
    a = draft.pick(found)
    held = draft.value(a)
    b, n = place(draft, held) or a, number(draft)
    b, n = (a if _is_complex(draft, b) else b), ("2" if _is_complex(draft, n) else n)
    risky = draft.pick([r for r in RISKY if not (draft.exact and INEXACT.search(r))])
    kinds = draft.rng.sample(("divide", "invalid", "over", "all"), 2)
    names = {letter: draft.new_name(letter) for letter in ("v", "w", "q", "g")}
    r = risky.format(a=a, b=b, n=n)
    r0 = r if draft.value(f"np.add({a}, {r}, out={a}.copy())") is not None else f"{a} / 2"
    return draft.pick(FORMS).format(a=a, b=b, n=n, r=r, r0=r0, e=kinds[0], f=kinds[1], **names)


def _is_complex(draft: Draft, text: str) -> bool:
    return np.iscomplexobj(draft.value(text))


# Branches, loops, handlers, and statements that raise


def condition(draft: Draft) -> str:
    """Return a test of a value."""
    source = array_expression(draft, draft.pick((0, 0, 1)))
    test = source and reduction(draft, source, whole=True)
    options = [f"{number(draft)} {draft.pick('<>')} 0.5"]
    if test:
        options += [f"{test} > {number(draft)}"] * 3 + [
            f"({source} > 0).any()",
            f"{source}.shape[0] > 3",
            f"np.all({source} < 2)",
            f"{source}.size",
        ]
    text = draft.pick(options)
    return text if draft.value(text) is not None else "True"


def body(draft: Draft, most: int = 3) -> list[str]:
    """Draw the statements of a body with a copy of the values: nothing has run afterwards."""
    scratch = draft.aside()
    drawn = [simple(scratch) for _ in range(draft.pick(range(1, most + 1)))]
    draft.fresh = scratch.fresh
    return [line for line in drawn if line] or ["pass"]


def _block(head: str, lines: list[str]) -> str:
    return head + "\n" + indent("\n".join(lines), "    ")


def branch(draft: Draft) -> str | None:
    """An `if`, perhaps with `else`."""
    text = _block(f"if {condition(draft)}:", body(draft))
    if draft.chance(0.5):
        text += "\n" + _block("else:", body(draft))
    return text


def count(draft: Draft) -> str | None:
    """A `for` over a range or over rows."""
    name = draft.new_name("i")
    source = place(draft)
    held = source and draft.value(source)
    if held is not None and held.ndim and 0 < held.shape[0] < 20 and draft.chance(0.3):
        row = draft.new_name("r")
        kind = draft.pick((f"{row} *= 2", f"log.append({row} * 2)", f"{name} = {row} + 1"))
        return _block(f"for {row} in {source}:", [kind, *body(draft, 2)])
    lines = body(draft)
    if draft.chance(0.2):
        lines.append(_block(f"if {condition(draft)}:", [draft.pick(("break", "continue"))]))
    if draft.chance(0.15):
        lines = [_block(f"for {name}j in range(2):", lines)]
    return _block(f"for {name} in range({draft.pick((1, 2, 3, 3, 4, 5))}):", lines)


def repeat(draft: Draft) -> str | None:
    """A `while` with a test of a value and a bounded number of turns."""
    name = draft.new_name("n")
    lines = [*body(draft), f"{name} += 1"]
    return _block(f"{name} = 0\nwhile {name} < {draft.pick((2, 3, 4))} and {condition(draft)}:", lines)


def moving(draft: Draft) -> str | None:
    """A loop whose slices move or change their size."""
    source = place(draft)
    held = source and draft.value(source)
    if held is None or held.ndim == 0:
        return None
    a, i = source, draft.new_name("i")
    m, j = draft.pick((1, 2, 3)), draft.pick(("0", f"{i} + 1", f"{i} + 2", f"2 * {i}", f"max({i} - 1, 0)"))
    c = number(draft)
    forms = [
        f"for {i} in range(min(4, max({a}.shape[0] - {m + 4}, 0))):\n"
        f"    {a}[{i}:{i} + {m}] += {a}[{j}:{j} + {m}]",
        f"for {i} in range(1, min(5, {a}.shape[0])):\n    {a}[{i}:] = {a}[{i}:] - {a}[:-{i}]",
        f"t = 0.0\nfor {i} in range(min(5, {a}.shape[0])):\n    t = t + ({a}[:{i}] * {c}).sum()",
        f"for {i} in range(1, min(5, {a}.shape[0])):\n    {a}[{i}] -= {c} * {a}[{i} - 1]",
        f"for {i} in range(min(4, {a}.shape[0])):\n    {a}[{i}] = {a}[{i}:].sum(axis=0)",
    ]
    if held.ndim == 2:
        forms += [
            f"for {i} in range(min(3, *{a}.shape) - 1):\n"
            f"    {a}[{i} + 1:, {i}] /= np.abs({a}[{i}, {i}]) + 5\n"
            f"    {a}[{i} + 1:, {i} + 1:] -= {a}[{i} + 1:, {i}:{i} + 1] * {a}[{i}, {i} + 1:]",
            f"for {i} in range(min(3, *{a}.shape)):\n    {a}[{i}, :{i}] *= {a}[:{i}, {i}].sum()",
            f"for {i} in range(min(4, {a}.shape[1])):\n    {a}[:, {i}] += {a}[:, :{i}].sum(axis=1)",
        ]
    return draft.pick(forms)


def attempt(draft: Draft) -> str | None:
    """Something that raises, caught."""
    lines = [fault(draft)] if draft.chance(0.7) else []
    return (
        _block("try:", [*body(draft, 1), *lines])
        + "\n"
        + _block("except (ValueError, TypeError, IndexError) as e:", ["log.append(str(e))"])
    )


def fault(draft: Draft) -> str:
    """Return a statement that raises for most arrays."""
    a = place(draft) or "np.ones(3)"
    return draft.pick(
        (
            f"{a}[10 ** 6]",
            f"{a}.sum(axis=7)",
            f"({a} * 2).reshape(-1, 7919)",
            f"{a} + np.ones(7919)[:, None, None][:5]",
            f"np.add({a}, np.ones({a}.shape + (0,)), out={a})",
            f"np.ones(3) @ np.ones(5) + {a}",
            f"{a}[:, :, :, :, 0]",
            f"({a} + 1).max(axis=(0, 0))",
            f"{a}.no_such_thing",
            f"[][{a}.ndim]",
            f"np.ones((0, 3)).max() + {a}",
            f"{a}[...] = np.ones(7919)",
            f"({a} > 0) - ({a} > 0)",
        )
    )


COMPOUND = {branch: 3, count: 4, repeat: 2.5, moving: 4, attempt: 1, steady: 2.5}


def compound(draft: Draft) -> str | None:
    """Draw a statement with a body; it has not run."""
    return draft.weighted(COMPOUND)(draft)
