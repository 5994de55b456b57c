"""Random innermost loops, with vectors; ``python -m tests.loopir.random_vector_loops BEGIN END``.

Lengths are around multiples of vectors, views begin anywhere, go forwards, backwards and by steps, and may
share memory. Elements are such that operations raise floating-point flags at times.
"""

from __future__ import annotations

import random
import sys

import numpy as np

from jitla.loopir import ProgramFacts, find_vector_loop
from jitla.loopir.program import BOOL, INT64, Assign, Check, For, Leave, constant
from tests.loopir.agreement import assert_agrees, interpreted
from tests.loopir.programs import F8, apply, cast, element, number, program, read, store

DTYPES = tuple(np.dtype(name) for name in ("f8", "f8", "f8", "f4", "i8", "i4", "i2", "u1", "i1", "b1",
                                           "c16", "c8"))
FLOAT_OPS = {"add": 2, "subtract": 2, "multiply": 2, "divide": 2, "maximum": 2, "minimum": 2, "negative": 1,
             "absolute": 1, "sqrt": 1, "floor": 1, "ceil": 1, "rint": 1, "square": 1, "where": 3, "clip": 3,
             "copysign": 2, "reciprocal": 1, "sign": 1}
INT_OPS = {"add": 2, "subtract": 2, "multiply": 2, "maximum": 2, "minimum": 2, "absolute": 1,
           "bitwise_and": 2, "bitwise_or": 2, "bitwise_xor": 2, "left_shift": 2, "right_shift": 2,
           "invert": 1, "where": 3, "floor_divide": 2, "remainder": 2}
COMPLEX_OPS = {"add": 2, "subtract": 2, "multiply": 2, "negative": 1, "conjugate": 1, "where": 3}
BOOL_OPS = {"logical_and": 2, "logical_or": 2, "logical_not": 1, "bitwise_xor": 2}
COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
REDUCED = {"i": ("add", "multiply", "bitwise_and", "bitwise_or", "bitwise_xor", "maximum", "minimum"),
           "u": ("add", "bitwise_xor", "maximum", "minimum"),
           "b": ("logical_or", "logical_and", "bitwise_or")}


class Generator:
    """Draws one loop: its views, statements and operands."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.views = {}  # dtype and number of axes by name
        self.temporaries = {}
        self.sums = {}
        self.scalars = {"x": F8, "y": np.dtype("f4"), "k": INT64, "w": np.dtype("i2"), "q": BOOL,
                        "z": np.dtype("c16")}
        self.dtypes = self.rng.sample(DTYPES, self.rng.randint(1, 3))
        self.raises = any(d.kind in "fc" for d in self.dtypes) and self.rng.random() < 0.8

    def one(self, options):
        return self.rng.choice(list(options))

    def view(self, dtype):
        """Return the name of a view of `dtype`, a new one at times."""
        known = [name for name, (own, _) in self.views.items() if own == dtype]
        if known and (len(self.views) > 5 or self.rng.random() < 0.5):
            return self.one(known)
        name = f"A{len(self.views)}"
        self.views[name] = dtype, self.one((1, 1, 1, 2))
        return name

    def index(self, view):
        """Return an index that is in bounds in all iterations: arrays have a margin of two elements."""
        ahead = self.one((0, 0, 0, 1, 2, -1, -2))
        i = read("i") if ahead == 0 else apply("add", read("i"), ahead)
        if self.rng.random() < 0.1:
            i = apply("subtract", apply("multiply", i, 2), i)
        if self.rng.random() < 0.1:
            i = read("k")
        if self.views[view][1] == 1:
            return (i,)
        other = self.one((number(1), read("k")))
        return (other, i) if self.rng.random() < 0.7 else (i, other)

    def literal(self, dtype):
        if dtype == BOOL:
            return constant(self.rng.random() < 0.5, dtype)
        if dtype.kind in "iu":
            return constant(self.rng.randrange(0 if dtype.kind == "u" else -9, 10), dtype)
        return constant(self.one((0.0, 1.0, -2.5, 0.25, 1e30)), dtype)

    def value(self, dtype, depth=3):
        draw = self.rng.random()
        names = [n for n, d in {**self.scalars, **self.temporaries}.items() if d == dtype]
        if draw < 0.12 or depth <= 0 and draw < 0.4:
            return read(self.one(names), dtype) if names and self.rng.random() < 0.7 else self.literal(dtype)
        if depth <= 0 or draw < 0.45:
            view = self.view(dtype)
            return element(view, *self.index(view), dtype=dtype)
        if dtype == INT64 and draw < 0.5:
            return apply("add", apply("multiply", read("i"), self.one((1, 3, -2))), read("k"))
        if draw < 0.58 and dtype != BOOL:
            source = self.one([d for d in self.dtypes if d.kind != "c" or dtype.kind == "c"] or [dtype])
            if source != dtype and not (source.kind == "f" and dtype.kind in "iu"):
                return cast(self.value(source, depth - 1), dtype)
        if dtype == BOOL:
            if draw < 0.7:
                op = self.one(BOOL_OPS)
                return apply(op, *(self.value(BOOL, depth - 1) for _ in range(BOOL_OPS[op])), dtype=BOOL)
            kind = self.one([d for d in self.dtypes if d.kind in "iuf"] or [INT64])
            return apply(self.one(COMPARISONS), *(self.value(kind, depth - 1) for _ in range(2)), dtype=BOOL)
        table = {"f": FLOAT_OPS, "c": COMPLEX_OPS}.get(dtype.kind, INT_OPS)
        op = self.one(table)
        args = [self.value(dtype, depth - 1) for _ in range(table[op])]
        if op == "where":
            args[0] = self.value(BOOL, depth - 1)
        return apply(op, *args, dtype=dtype)

    def statement(self):
        draw = self.rng.random()
        dtype = self.one(self.dtypes)
        if draw < 0.2:
            name = f"t{len(self.temporaries)}"
            value = self.value(dtype)
            self.temporaries[name] = dtype
            return Assign(name, value)
        if draw < 0.3 and dtype.kind in "biu":
            name = f"s{len(self.sums)}"
            self.sums[name] = dtype
            op = self.one(REDUCED[dtype.kind])
            args = [read(name, dtype), self.value(dtype)]
            self.rng.shuffle(args)
            return Assign(name, apply(op, *args, dtype=dtype))
        if draw < 0.35:
            return Check(apply("logical_and", self.value(BOOL), self.value(BOOL), dtype=BOOL), 1)
        view = self.view(dtype)
        return store(view, *self.index(view), value=self.value(dtype))


def random_case(seed):
    """Return a program with one innermost loop, and its operands."""
    generator = Generator(seed)
    body = tuple(generator.statement() for _ in range(generator.rng.randint(1, 3)))
    if generator.rng.random() < 0.3:
        body = (Assign("j", apply("add", read("i"), number(generator.one((0, 1))))), *body)
    loop = For("L", "i", read("begin"), read("end"), 1, body)
    sums, temporaries = generator.sums, generator.temporaries
    scalars = [("begin", INT64), ("end", INT64), ("i", INT64), ("j", INT64), *generator.scalars.items(),
               *temporaries.items(), *sums.items()]
    results = [*sums, *(["i", *temporaries] if generator.rng.random() < 0.5 else [])]
    if any(isinstance(statement, Check) for statement in body):  # scalars of what is undone are not set
        results = [name for name in results if name not in temporaries]
    views = [(name, dtype, ndim) for name, (dtype, ndim) in generator.views.items()]
    given = ("begin", "end", *generator.scalars, *sums, *generator.views)
    code = program((loop, Leave(0)), scalars, views, tuple(results), given, 3, raises=generator.raises,
                   name=f"vectors{seed}")
    return code, operands(generator, seed)


def operands(generator, seed):
    """Return values for all parameters; some views share a buffer."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 3) * 16 + rng.integers(0, 10) if rng.random() < 0.8 else rng.integers(0, 101))
    values = {"begin": 2, "end": 2 + count, "x": rng.normal(), "y": np.float32(rng.normal()),
              "k": int(rng.integers(0, 3)), "w": np.int16(rng.integers(-5, 5)), "q": bool(rng.random() < 0.5),
              "z": complex(*rng.normal(size=2))}
    values |= {name: dtype.type(rng.integers(0, 2)) for name, dtype in generator.sums.items()}
    buffers = {}
    for name, (dtype, ndim) in generator.views.items():
        length = count + 5
        shape = (length,) if ndim == 1 else (length, length)
        if dtype not in buffers or rng.random() < 0.7:
            buffers[dtype] = filled(rng, dtype, 2 * length * max(length, 3) + 64)
        data, item = buffers[dtype], dtype.itemsize
        offset = int(rng.integers(0, 9)) * item + (int(rng.integers(0, item)) if rng.random() < 0.2 else 0)
        step = int(rng.choice((1, 1, 1, 1, 2, -1, 0)))
        if ndim == 2:
            order = (length * item, item) if rng.random() < 0.7 else (item, length * item)
            values[name] = np.ndarray(shape, dtype, data, offset, order)
        else:
            first = offset + (length * item if step < 0 else 0)
            values[name] = np.ndarray(shape, dtype, data, first, (step * item,))
    return values


def filled(rng, dtype, size):
    """Return a buffer of random elements, special ones at times."""
    if dtype.kind == "b":
        return rng.random(size) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -20, 20, size).astype(dtype)
    data = rng.normal(size=size) * 10
    if rng.random() < 0.5:
        some = rng.integers(0, size, max(1, size // 50))
        data[some] = rng.choice((np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, 1e-300), len(some))
    with np.errstate(all="ignore"):
        return (data + 1j * data[::-1]).astype(dtype) if dtype.kind == "c" else data.astype(dtype)


def assert_vectors_agree(jit, code, values):
    """Run a program; where an iteration is undone its flags are of no interest."""
    done = interpreted(code, values)[0].exit == 0
    return assert_agrees(jit, code, levels=(1,), flags=done, **values)


def main():
    from jitla.codegen import Jit

    jit = Jit()
    begin, end = map(int, sys.argv[1:])
    vectorised = 0
    for seed in range(begin, end):
        try:
            code, values = random_case(seed)
            plan = find_vector_loop(code.body[0], ProgramFacts(code))
            vectorised += not isinstance(plan, str)
            assert_vectors_agree(jit, code, values)
        except Exception as error:
            print(seed, type(error).__name__, str(error)[:600])
    print("with vectors:", vectorised, "of", end - begin)


if __name__ == "__main__":
    main()
