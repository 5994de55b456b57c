"""Random statements that make and call functions: closures, generators, recursion, classes."""

from __future__ import annotations

from tests.fuzz.draft import Draft
from tests.fuzz.expressions import number, place

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
