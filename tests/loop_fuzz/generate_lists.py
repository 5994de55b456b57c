"""Random statements about lists, in functions of `tests.loop_fuzz.generate`.

The names are `l0` and `l1` (lists of numbers, which may be one list), `t0` (a list of lists) and `p0` (a list
of tuples). Lists stay short, so that programs end.
"""

from __future__ import annotations

import random
from typing import Any

LISTS = ("l0", "l1")
NAMES = (*LISTS, "t0", "p0")
SHORT = 16  # items, from which nothing is appended
SHARE = 0.3  # of all seeds


def has_lists(seed: int) -> bool:
    """Return whether the program of a seed has lists."""
    return random.Random(f"lists {seed}").random() < SHARE


def setup(g: Any) -> None:
    """Write the statements that make the lists before the loops."""
    first = g.pick("[]", "list(range(n))", "a.tolist()", "[0] * n", "[0.0] * n", "[x] * 3", "[k, 1]",
                   "c.tolist()", "[True, False] * 2", "[None] * 3", "list(a)", "[1, 2.5]")
    g.emit(f"l0 = {first}")
    g.emit(f"l1 = {g.pick('l0', 'l0[:]', 'b.tolist()', '[]', '[1]', '[0.5] * n', 'list(range(3))')}")
    g.emit("t0 = " + g.pick(
        "[]", "[l0, l1]", "[[0] * 3 for _ in range(n)]", "[[0.0] * n] * 2", "[list(range(n)), [1]]",
        "m.tolist()",
        "[[] for _ in range(3)]", "[l1]"))
    pairs = g.pick("[]", "[(1, 2)]", "[(0, x), (1, 2.5)]", "[(k, 1.0)] * 3", "list(zip(range(n), l0))")
    g.emit(f"p0 = {pairs}")


def place(g: Any, name: str) -> str:
    """Return an index of a list."""
    index = g.index()
    if g.calm and g.chance(0.8):
        return g.pick("-1", f"{index} % len({name})", f"{index} % len({name})", "0")
    return g.pick("0", "-1", index, "1", f"len({name}) // 2")


def number(g: Any) -> str:
    """Return a number of a list, or another one."""
    name = g.pick(*LISTS)
    return g.weighted(
        (3, lambda: f"{name}[{place(g, name)}]"),
        (1, lambda: f"len({g.pick(*NAMES)})"),
        (2, lambda: g.number(1)),
        (1, lambda: g.whole(1)),
        (0.7, lambda: f"sum({name})"),
        (0.5, lambda: f"{g.pick('min', 'max')}({name})"),
        (0.5, lambda: f"sum(v * 2 for v in {name} if v)"),
        (0.4, lambda: f"{name}.count({g.whole(2)})"),
        (0.3, lambda: f"t0[{place(g, 't0')}][{g.index()}]"),
        (0.3, lambda: f"p0[{place(g, 'p0')}][{g.pick('0', '1')}]"),
        (0.2, lambda: f"{name}.index({g.whole(2)})"),
        (0.2, lambda: f"{name}.pop()"),
    )


def made(g: Any) -> str:
    """Return a new list of numbers, or one that there is."""
    name, other = g.pick(*LISTS), g.pick(*LISTS)
    return g.weighted(
        (2, lambda: name),
        (2, lambda: f"{name}[{g.part()}]"),
        (2, lambda: f"[{g.pick('v', 'v + 1', g.number(2), 'v * 0.5')} for v in {name}]"),
        (1, lambda: f"[v for v in {name} if v {g.pick('>', '<', '==')} {g.number(2)}]"),
        (1, lambda: f"[u + v for u, v in zip({name}, {g.pick(other, 'a', 'range(n)')})]"),
        (1, lambda: f"({name} + {other})[:9]"),
        (1, lambda: f"[{number(g)}, {g.number(2)}]"),
        (1, lambda: f"[{g.number(2)}] * ({g.index()} % 5)"),
        (0.7, lambda: f"({name} * 2)[:9]"),
        (0.5, lambda: f"{name}.copy()"),
        (0.7, lambda: f"list(range({g.index()} % 5))"),
        (0.5, lambda: "[]"),
        (0.5, lambda: f"t0[{place(g, 't0')}]"),
        (0.3, lambda: f"[i for i in range(3) for j in range(i) if {g.test(2)}]"),
    )


def statement(g: Any) -> None:
    """Write a statement about lists."""
    name, other = g.pick(*LISTS), g.pick(*LISTS)
    deep = 1 if g.depth < 4 and g.budget > 0 else 0
    lines = g.weighted(
        (4, lambda: [f"if len({name}) < {SHORT}: {name}.append({number(g)})"]),
        (1, lambda: [f"if len({name}) < {SHORT}: {name}.extend("
                     f"{g.pick(f'{other}[:3]', '(s0, i0)', 'a[:2]', '[1]')})"]),
        (1, lambda: [f"if len({name}) < {SHORT}: {name} += {g.pick(f'{other}[-2:]', '[s0, i0]', '[1]')}"]),
        (0.7, lambda: [f"if len({name}) < {SHORT}: {name}.insert({g.index()}, {number(g)})"]),
        (1.5, lambda: [f"if {name}: " + g.pick(f"s0 = {name}.pop()", f"{name}.pop(0)",
                                               f"i0 = {name}.pop({place(g, name)})")]),
        (4, lambda: [f"{name}[{place(g, name)}] {g.pick('=', '=', '+=', '*=', '-=')} {number(g)}"]),
        (1, lambda: ["{0}[{1}], {0}[{2}] = {0}[{2}], {0}[{1}]".format(name, place(g, name), place(g, name))]),
        (3, lambda: [f"{g.pick('s0', 's1', 'i0')} = {number(g)}"]),
        (2, lambda: [f"{name} = {made(g)}"]),
        (0.5, lambda: ["l0, l1 = l1, l0"]),
        (1, lambda: [f"f0 = {g.pick(g.whole(1), g.number(1))} {g.pick('in', 'not in')} {name}"]),
        (0.7, lambda: [f"f0 = {g.pick('any', 'all')}(v {g.pick('>', '==')} {g.number(2)} for v in {name})"]),
        (1, lambda: [f"t0[{place(g, 't0')}][{g.index()}] {g.pick('=', '+=')} {number(g)}"]),
        (0.7, lambda: [f"t0[{place(g, 't0')}] = {made(g)}"]),
        (0.7, lambda: [f"if len(t0) < 6: t0.append({made(g)})"]),
        (0.7, lambda: [f"l1 = t0[{place(g, 't0')}]"]),
        (1, lambda: [f"if len(p0) < {SHORT}: p0.append(({number(g)}, {g.number(2)}))"]),
        (0.7, lambda: ["if p0: s1, s2 = p0.pop()"]),
        (0.4, lambda: [f"{name}.{g.pick('reverse()', 'clear()', 'remove(0)', 'sort()')}"]),
        (0.4, lambda: [f"s0 = np.sum({name})"]),
        (0.3, lambda: [f"f0 = {name} is {other}"]),
        (0.5, lambda: [f"while {name}: s0 = {name}.pop()"]),
        (1.5 * deep, lambda: ["loop"]),
    )
    if lines == ["loop"]:
        loop(g)
        return
    for line in lines:
        g.emit(line)


def loop(g: Any) -> None:
    """Write a loop over a list."""
    level = len(g.counters) + len(g.items)
    name, item, counter = g.pick(*LISTS), f"y{level}", f"h{level}"
    items, counters = [item], []
    head = g.pick(f"{item} in {name}", f"{item} in {name}", f"{item} in {name}[{g.part()}]", "pairs",
                  "numbered", "zipped", f"{item} in {made(g)}", "rows")
    if head == "numbered":
        head, counters = f"{counter}, {item} in enumerate({name})", [counter]
    elif head == "zipped":
        head = f"{item}, {item}z in zip({name}, {g.pick('l1', 'a', 'range(n)')})"
    elif head == "pairs":
        head = f"{item}, {item}z in p0"
    elif head == "rows":
        head, items = "l1 in t0", []
    g.emit(f"for {head}:")
    g.items += items
    g.counters += counters
    g.loops += 1
    g.block(g.random.randint(1, 2))
    g.loops -= 1
    for one in items:
        g.items.remove(one)
    for one in counters:
        g.counters.remove(one)
