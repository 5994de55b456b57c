"""Random loop programs with operands; ``python -m tests.loopir.random_programs BEGIN END`` compares many."""

from __future__ import annotations

import random
import sys

import numpy as np

from jitla.loopir.program import (
    BOOL,
    INT64,
    Address,
    Allocate,
    Assign,
    AxisMap,
    BindView,
    Block,
    Break,
    Check,
    Continue,
    Dot,
    Extent,
    For,
    Foreign,
    If,
    InnerLoop,
    Leave,
    Place,
    Repeat,
    Stride,
    constant,
)
from tests.loopir.programs import F8, apply, cast, checked, element, number, program, read, store

DTYPES = {"i": INT64, "j": INT64, "k": INT64, "n": INT64, "f": F8, "g": F8, "h": np.dtype("f4"),
          "u": np.dtype("u1"), "s": np.dtype("i2"), "c": np.dtype("c16"), "b": BOOL, "d": BOOL}
VIEWS = {"A": (F8, 2), "B": (INT64, 1), "C": (np.dtype("f4"), 1), "D": (np.dtype("c16"), 1),
         "P": (F8, 1), "Q": (F8, 2), "R": (INT64, 1), "Z": (F8, 2)}
GIVEN = tuple("ABCD")
FLOAT_OPS = {"add": 2, "subtract": 2, "multiply": 2, "divide": 2, "maximum": 2, "minimum": 2, "negative": 1,
             "absolute": 1, "sqrt": 1, "floor": 1, "rint": 1, "floor_divide": 2, "remainder": 2, "exp": 1,
             "sin": 1, "square": 1, "where": 3}
INT_OPS = {"add": 2, "subtract": 2, "multiply": 2, "floor_divide": 2, "remainder": 2, "negative": 1,
           "absolute": 1, "maximum": 2, "minimum": 2, "bitwise_and": 2, "bitwise_or": 2, "bitwise_xor": 2,
           "left_shift": 2, "right_shift": 2, "invert": 1, "where": 3}
COMPLEX_OPS = {"add": 2, "subtract": 2, "multiply": 2, "negative": 1, "conjugate": 1, "where": 3}
COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
LOGIC = {"logical_and": 2, "logical_or": 2, "logical_not": 1, "logical_xor": 2}
EXITS = 4


class Generator:
    """Draws statements and values; `labels` are those around, `counters` loop variables in use."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.labels = []
        self.counters = []
        self.count = 0
        self.raises = self.rng.random() < 0.6

    def one(self, options):
        return self.rng.choice(list(options))

    # -- values ---------------------------------------------------------------------------------

    def index(self, view, axis):
        """Return an index in bounds: views have elements."""
        return apply("remainder", self.value(INT64, 1), Extent(view, axis))

    def element(self, view, depth):
        return element(view, *(self.index(view, k) for k in range(VIEWS[view][1])), dtype=VIEWS[view][0])

    def literal(self, dtype):
        if dtype == BOOL:
            return constant(self.rng.random() < 0.5, dtype)
        if dtype.kind in "iu":
            value = self.one((0, 1, 2, 3, 5, 7, 100, self.rng.randrange(2 ** (8 * dtype.itemsize - 1))))
            negative = dtype.kind == "i" and self.rng.random() < 0.4
            return constant(-value if negative else value, dtype)
        real = self.one((0.0, 1.0, 0.5, -2.5, 3.25, 1e30, -0.0, self.rng.gauss(0, 10)))
        return constant(complex(real, self.rng.gauss(0, 1)) if dtype.kind == "c" else real, dtype)

    def value(self, dtype, depth=3):
        """Return a value of `dtype`."""
        names = [n for n, d in DTYPES.items() if d == dtype]
        views = [v for v, (d, _) in VIEWS.items() if d == dtype]
        draw = self.rng.random()
        if depth <= 0 or draw < 0.25:
            return read(self.one(names), dtype) if self.rng.random() < 0.6 else self.literal(dtype)
        if draw < 0.4 and views:
            return self.element(self.one(views), depth - 1)
        if dtype == BOOL:
            return self.truth(depth)
        if draw < 0.5:
            return self.converted(dtype, depth)
        if dtype.kind in "iu" and draw < 0.7:
            return self.checked(dtype, depth)
        if dtype == F8 and draw < 0.55:
            return Foreign(self.one(("sin", "atan", "tanh")), (self.value(F8, depth - 1),))
        if dtype == INT64 and draw < 0.75:
            view = self.one(VIEWS)
            return Extent(view, self.rng.randrange(VIEWS[view][1]))
        table = COMPLEX_OPS if dtype.kind == "c" else FLOAT_OPS if dtype.kind == "f" else INT_OPS
        op = self.one(table)
        if dtype.kind == "u" and op in ("negative", "absolute"):
            op = "invert"
        args = [self.value(dtype, depth - 1) for _ in range(table[op])]
        if op == "where":
            args[0] = self.value(BOOL, depth - 1)
        return apply(op, *args, dtype=dtype)

    def checked(self, dtype, depth):
        op = self.one(("add", "sub", "mul", "neg", "shl", "floordiv", "mod"))
        args = [self.value(dtype, depth - 1) for _ in range(1 if op == "neg" else 2)]
        return checked(op, *args, dtype=dtype, exit=self.rng.randrange(EXITS))

    def converted(self, dtype, depth):
        if dtype.kind == "c":
            return cast(self.value(self.one((F8, INT64, BOOL)), depth - 1), dtype)
        source = self.one([d for d in DTYPES.values() if d.kind != "c"])
        if source == dtype or dtype == BOOL:
            return self.value(dtype, depth - 1)
        if source.kind == "f" and dtype.kind in "iu":
            if self.rng.random() < 0.5:
                return checked("cast", self.value(source, depth - 1), dtype=dtype, exit=1)
            return cast(self.value(source, depth - 1), dtype)
        return cast(self.value(source, depth - 1), dtype)

    def truth(self, depth):
        if self.rng.random() < 0.3:
            op = self.one(LOGIC)
            return apply(op, *(self.value(BOOL, depth - 1) for _ in range(LOGIC[op])), dtype=BOOL)
        dtype = self.one([d for d in DTYPES.values() if d.kind in "iuf"])
        return apply(self.one(COMPARISONS), *(self.value(dtype, depth - 1) for _ in range(2)), dtype=BOOL)

    # -- statements -----------------------------------------------------------------------------

    def label(self):
        self.count += 1
        return f"L{self.count}"

    def body(self, depth, most=5):
        return tuple(s for _ in range(self.rng.randint(1, most)) for s in self.statement(depth))

    def statement(self, depth):
        draw = self.rng.random()
        if depth <= 0 or draw < 0.35:
            return (self.assign(),)
        if draw < 0.5:
            view = self.one(VIEWS)
            dtype, ndim = VIEWS[view]
            return (store(view, *(self.index(view, k) for k in range(ndim)), value=self.value(dtype)),)
        if draw < 0.62:
            other = self.body(depth - 1, 3) if self.rng.random() < 0.5 else ()
            return (If(self.value(BOOL), self.body(depth - 1, 3), other),)
        if draw < 0.72 and len(self.counters) < 3:
            return (self.loop(depth),)
        if draw < 0.75:
            return self.repeat(depth)
        if draw < 0.78:
            label = self.label()
            self.labels.append((label, False))
            body = self.body(depth - 1)
            self.labels.pop()
            return (Block(label, body),)
        if draw < 0.83 and self.labels:
            label, loop = self.one(self.labels)
            jump = Continue(label) if loop and self.rng.random() < 0.5 else Break(label)
            return (If(self.value(BOOL), (jump,)),)
        if draw < 0.85:
            return (Check(apply("logical_and", self.value(BOOL), self.value(BOOL), dtype=BOOL),
                          self.rng.randrange(EXITS)),)
        if draw < 0.86:
            return (If(apply("logical_and", self.value(BOOL), self.value(BOOL), dtype=BOOL),
                       (Leave(self.rng.randrange(EXITS)),)),)
        if draw < 0.93:
            return (self.bind(),)
        if draw < 0.95:
            sizes = tuple(apply("add", apply("remainder", self.value(INT64, 1), 4), 1) for _ in range(2))
            return (Allocate("Z", sizes, True, 3),)
        return self.routine()

    def assign(self):
        name = self.one([n for n in DTYPES if n not in self.counters])
        return Assign(name, self.value(DTYPES[name]))

    def loop(self, depth):
        name = self.one([n for n in "ijk" if n not in self.counters])
        label, step = self.label(), self.one((1, 1, 1, -1, 2, -3))
        begin, end = (apply("remainder", self.value(INT64, 1), self.one((2, 4, 6))) for _ in range(2))
        if step < 0:
            begin = apply("add", begin, 3)
        self.counters.append(name)
        self.labels.append((label, True))
        body = self.body(depth - 1)
        self.labels.pop()
        self.counters.pop()
        return For(label, name, begin, end, step, body)

    def repeat(self, depth):
        """Return a loop that a counter ends, which nothing else is assigned to."""
        label, name = self.label(), f"r{self.count}"
        self.labels.append((label, True))
        body = self.body(depth - 1, 3)
        self.labels.pop()
        count = Assign(name, apply("add", read(name), 1))
        stop = If(apply("greater", read(name), self.rng.randint(1, 5)), (Break(label),))
        self.extra = [*getattr(self, "extra", []), name]
        return Assign(name, number(0)), Repeat(label, (count, stop, *body))

    def bind(self):
        """Return a view of a view that has elements."""
        name = self.one("PQR")
        dtype, ndim = VIEWS[name]
        source = self.one([v for v, (d, n) in VIEWS.items() if d == dtype and v != "Z"])
        axes = list(range(VIEWS[source][1]))
        self.rng.shuffle(axes)
        maps = []
        for _ in range(ndim):
            if axes and self.rng.random() < 0.85:
                maps.append(self.axis(source, axes.pop()))
            else:
                maps.append(AxisMap(None, number(0), number(self.rng.randint(1, 4)), number(1)))
        points = tuple((axis, self.index(source, axis)) for axis in axes)
        return BindView(name, source, points, tuple(maps))

    def axis(self, source, axis):
        extent = Extent(source, axis)
        draw = self.rng.random()
        if draw < 0.3:
            return AxisMap(axis, number(0), extent, number(1))
        if draw < 0.6:
            return AxisMap(axis, apply("subtract", extent, 1), extent, number(-1))
        if draw < 0.8:
            half = apply("floor_divide", apply("add", extent, 1), 2)
            return AxisMap(axis, number(0), half, number(2))
        return AxisMap(axis, self.index(source, axis), number(1), self.literal(INT64))

    def routine(self):
        draw = self.rng.random()
        zero = number(0)
        view = self.one([v for v, (d, n) in VIEWS.items() if d == F8])
        start = (zero,) * VIEWS[view][1]
        if draw < 0.4:
            return (InnerLoop("add.dd->d", (Place("f"), Address(view, start), Place("f")),
                              (Extent(view, 0),), (zero, Stride(view, 0), zero)),)
        if draw < 0.7:
            return (Dot(F8, Address(view, start), Stride(view, 0), Address(view, start), Stride(view, 0),
                        Place("g"), Extent(view, 0)),)
        return (InnerLoop("exp.d->d", (Place("f"), Place("g")), (number(1),), (zero, zero)),)


def random_case(seed):
    """Return a program and its operands."""
    generator = Generator(seed)
    body = (
        BindView("P", "A", ((0, number(0)),), (AxisMap(1, number(0), Extent("A", 1), number(1)),)),
        BindView("Q", "A", (), tuple(AxisMap(k, number(0), Extent("A", k), number(1)) for k in (0, 1))),
        BindView("R", "B", (), (AxisMap(0, number(0), Extent("B", 0), number(1)),)),
        Allocate("Z", (number(2), number(3)), True, 3),
        *generator.body(4, 8), Leave(0))
    scalars = [*DTYPES.items(), *((n, INT64) for n in getattr(generator, "extra", []))]
    views = [(n, d, k) for n, (d, k) in VIEWS.items()]
    code = program(body, scalars, views, (*DTYPES, "P", "Q", "R"), (*DTYPES, *GIVEN), EXITS,
                   raises=generator.raises, name=f"random{seed}")
    return code, operands(seed)


def operands(seed):
    """Return values for all parameters; arrays are views of several layouts."""
    rng = np.random.default_rng(seed)
    values = {}
    for name, dtype in DTYPES.items():
        low, high = {"b": (0, 2), "u": (0, 255)}.get(dtype.kind, (-9, 100))
        values[name] = dtype.type(rng.integers(low, high) if dtype.kind in "biu" else rng.normal() * 10)
    for name in GIVEN:
        dtype, ndim = VIEWS[name]
        shape = tuple(rng.integers(1, 6, ndim))
        data = (rng.normal(size=tuple(2 * n for n in shape)) * 20).astype(dtype)
        steps = tuple(slice(None, None, int(s)) for s in rng.choice([2, -2], ndim))
        values[name] = data[steps] if rng.random() < 0.6 else np.ascontiguousarray(data[steps])
    return values


def main():
    from jitla.codegen import Jit
    from tests.loopir.agreement import assert_agrees

    jit = Jit()
    begin, end = map(int, sys.argv[1:])
    exits = [0] * EXITS
    for seed in range(begin, end):
        try:
            code, values = random_case(seed)
            exits[assert_agrees(jit, code, **values)[0].exit] += 1
        except Exception as error:
            print(seed, type(error).__name__, str(error)[:600])
    print("exits", exits)


if __name__ == "__main__":
    main()
