"""Random DAGs with leaves in every kind of layout, and exact comparison of a program with the interpreter."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jitla.fusion import Layout, layout_operands
from jitla.hops import Hop, Meta, WeakScalar, apply, const, evaluate, leaf, make, topo

# Layouts of leaves, exact comparison of results


def layouts_of(leaves: Sequence[Any]) -> dict[int, Layout]:
    """Layouts of the array leaves, by slot."""
    return {i: Layout(x.shape, x.strides) for i, x in enumerate(leaves) if isinstance(x, np.ndarray)}


def expected(roots: tuple[Hop, ...], leaves: Sequence[Any]) -> list[Any]:
    """What the interpreter makes of the roots, laid out as ufuncs do that cast while they read."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        order = topo(roots)
        values = dict(zip(order, evaluate(order, leaves), strict=True))
        for hop in order:
            given = layout_operands(hop)
            if hop.inputs:
                _relay(hop, [values[i] for i in given], values)
        return [values[r] for r in roots]


def _relay(hop: Hop, given: list[Any], values: dict[Hop, Any]) -> None:
    """Give the value of `hop` the layout it has when NumPy reads the uncast operands."""
    again = hop.op.ref(*given, **dict(hop.attrs))
    old = values[hop]
    if isinstance(again, np.ndarray) and again.shape == old.shape and again.dtype == old.dtype:
        values[hop] = again


def run(bound: Any, leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Run a bound program without warnings."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return bound.run(list(leaves))


def difference(got: Any, want: Any) -> str:
    """Say how two results differ; empty if not at all."""
    if type(got) is not type(want):
        return f"type {type(got)} for {type(want)}"
    if isinstance(got, np.ndarray):
        for fact in ("shape", "dtype"):
            if getattr(got, fact) != getattr(want, fact):
                return f"{fact} {getattr(got, fact)} for {getattr(want, fact)}"
        steps = [(s, t) for n, s, t in zip(got.shape, got.strides, want.strides, strict=True) if n > 1]
        if got.size and any(s != t for s, t in steps):  # a step that is never taken means nothing
            return f"strides {got.strides} for {want.strides}"
    if not np.array_equal(_bits(got), _bits(want)):
        return f"values {got} for {want}"
    return ""


def _bits(value: Any) -> np.ndarray:
    """Bit patterns; NaNs are all alike, and of both zeros one is as good."""
    array = np.array(value)
    if array.dtype.kind == "f":  # any NaN is as good as another
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
        return array.view(f"i{array.itemsize}")
    return array


# Random DAGs

SYMBOLS = {"a": 2, "b": 9, "c": 13, "d": 140}
OTHER_SYMBOLS = {"a": 3, "b": 7, "c": 200, "d": 17}
UNARY = ("negative", "absolute", "square", "exp", "tanh", "sqrt", "floor", "isnan", "sign")
BINARY = (
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "less", "greater_equal",
    "equal", "copysign", "hypot", "add", "multiply",
)
AGGREGATES = ("sum", "sum", "max", "min", "any", "all", "prod")


@dataclass
class Sample:
    """A DAG: `roots`, the leaf objects, every hop in the order it was made."""

    roots: tuple[Hop, ...]
    leaves: list
    made: list[Hop]


def array(rng: random.Random, shape: tuple[int, ...], dtype: np.dtype, kind: str) -> np.ndarray:
    """An array of `shape` whose elements lie as `kind` says."""
    data = np.random.default_rng(rng.randrange(1 << 30))
    whole = tuple(2 * n for n in shape)
    values = (data.standard_normal(whole) * 3).astype(dtype)
    if kind == "strided" and len(shape):
        return values[tuple(slice(None, None, 2) for _ in shape)]
    values = values[tuple(slice(0, n) for n in shape)]
    match kind:
        case "F":
            return np.asfortranarray(values)
        case "reversed":
            return values.copy()[tuple(slice(None, None, -1) for _ in shape)]
        case "permuted" if len(shape) > 1:
            return np.moveaxis(np.ascontiguousarray(np.moveaxis(values, 0, -1)), -1, 0)
        case "broadcast" if len(shape):
            return np.broadcast_to(np.ascontiguousarray(values[:1]), shape)
        case "sliced" if len(shape):
            return values
    return np.ascontiguousarray(values).reshape(shape)


KINDS = ("C", "C", "C", "C", "F", "reversed", "permuted", "broadcast", "sliced", "strided")


class Builder:
    """Grows one DAG; all choices come from `seed` and none from a size."""

    def __init__(self, seed: int, symbols: dict[str, int], plain: bool, layout_seed: int) -> None:
        self.rng = random.Random(seed)
        self.layout_rng = random.Random(layout_seed)
        self.symbols = symbols
        self.plain = plain
        self.leaves: list = []
        self.values: list[tuple[Hop, tuple[str, ...]]] = []
        self.weak: list[int] = []
        self.dtype = np.dtype(self.rng.choice(("f8", "f8", "f4", "i8")))

    def shape(self, names: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(1 if n == "1" else self.symbols[n] for n in names)

    def add_leaf(self) -> None:
        space = self.rng.choice((("b", "d"), ("b", "d"), ("d",), ("a", "b", "c"), ("c",)))
        start = self.rng.choice((0, 0, 0, len(space) - 1))
        names = tuple("1" if self.rng.random() < 0.15 else n for n in space[start:])
        dtype = self.dtype if self.rng.random() < 0.8 else np.dtype(self.rng.choice(("f4", "i4", "?")))
        kind = "C" if self.plain else self.layout_rng.choice(KINDS)
        value = array(self.layout_rng, self.shape(names), dtype, kind)
        self.values.append((leaf(len(self.leaves), Meta(value.shape, dtype)), names))
        self.leaves.append(value)

    def add_scalar(self) -> None:
        dtype = np.dtype(self.rng.choice(("f8", "f4", "i8")))
        form = self.rng.choice(("scalar", "weak", "array", "const"))
        value = dtype.type(self.rng.choice((-2, 3, 1)))
        if form == "const":
            self.values.append((const(value, dtype), ()))
            return
        if form == "weak":
            self.weak.append(len(self.leaves))
            self.leaves.append(value.item())
            return
        given = np.array(value) if form == "array" else value
        self.values.append((leaf(len(self.leaves), Meta((), dtype), form), ()))
        self.leaves.append(given)

    def pick(self) -> tuple[Hop, tuple[str, ...]]:
        return self.rng.choice(self.values[-8:] if self.rng.random() < 0.7 else self.values)

    def step(self) -> None:
        x, names = self.pick()
        choice = self.rng.random()
        if choice < 0.2:
            self.unary(x, names)
        elif choice < 0.65:
            self.binary(x, names)
        elif choice < 0.82:
            self.aggregate(x, names)
        else:
            self.call(x, names)

    def put(self, hop: Hop, names: tuple[str, ...]) -> None:
        self.values.append((hop, names))

    def unary(self, x: Hop, names: tuple[str, ...]) -> None:
        name = self.rng.choice(UNARY)
        if x.meta.dtype == bool:
            name = "logical_not"
        if name == "floor" and x.meta.dtype.kind != "f":
            name = "absolute"
        if self.rng.random() < 0.1:
            self.put(make("cast", (x,), dtype=np.dtype(self.rng.choice(("f4", "f8", "i4")))), names)
        else:
            self.put(apply(name, x), names)

    def binary(self, x: Hop, names: tuple[str, ...]) -> None:
        if self.weak and self.rng.random() < 0.2:
            slot = self.rng.choice(self.weak)
            operand = WeakScalar(slot, type(self.leaves[slot]))
            if x.meta.dtype.kind == "f":
                self.put(apply(self.rng.choice(("multiply", "add")), x, operand), names)
            return
        fits = [(y, n) for y, n in self.values if self.joined(names, n) is not None]
        y, other = self.rng.choice(fits)
        name = self.rng.choice(BINARY)
        if {x.meta.dtype.kind, y.meta.dtype.kind} <= {"b"} and name in ("subtract", "copysign"):
            name = "logical_xor"
        both = self.joined(names, other)
        if self.rng.random() < 0.1 and both is not None:
            self.put(apply("where", apply("less", x, y), x, y), both)
        else:
            self.put(apply(name, x, y), both)

    def joined(self, a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...] | None:
        long, short = (a, b) if len(a) >= len(b) else (b, a)
        short = ("1",) * (len(long) - len(short)) + short
        out = []
        for m, n in zip(long, short, strict=True):
            if m != n and "1" not in (m, n):
                return None
            out.append(n if m == "1" else m)
        return tuple(out)

    def aggregate(self, x: Hop, names: tuple[str, ...]) -> None:
        if not names:
            return
        name = self.rng.choice(AGGREGATES)
        axis = tuple(sorted(self.rng.sample(range(len(names)), self.rng.randint(1, len(names)))))
        if self.rng.random() < 0.4:
            axis = tuple(range(len(names)))
        keepdims = self.rng.random() < 0.4
        if keepdims:
            left = tuple("1" if i in axis else n for i, n in enumerate(names))
        else:
            left = tuple(n for i, n in enumerate(names) if i not in axis)
        self.put(apply(name, x, axis=axis, keepdims=keepdims), left)

    def call(self, x: Hop, names: tuple[str, ...]) -> None:
        if not names:
            return
        match self.rng.choice(("transpose", "flip", "getitem", "matmul", "mean", "cumsum", "count",
                               "concatenate", "ravel")):
            case "transpose":
                axes = list(range(len(names)))
                self.rng.shuffle(axes)
                self.put(make("transpose", (x,), axes=tuple(axes)), tuple(names[i] for i in axes))
            case "flip":
                self.put(make("flip", (x,), axis=(0,)), names)
            case "getitem":
                index = self.rng.choice(((("i", 0),), (("e",), ("i", 0)), (("n",),),
                                         (("s", None, None, -1),)))
                left = {"i": names[1:], "e": names[:-1], "n": ("1", *names), "s": names}
                self.put(make("getitem", (x,), index=index), left[index[0][0]])
            case "matmul" if len(names) == 2 and "1" not in names:
                turned = make("transpose", (x,), axes=(1, 0))
                self.put(apply("matmul", x, turned), (names[0], names[0]))
            case "mean" if x.meta.dtype.kind == "f":
                self.put(make("mean", (x,), axis=(0,), keepdims=False), names[1:])
            case "cumsum" if x.meta.dtype in (np.dtype("f8"), np.dtype("i8")):
                self.put(make("cumsum", (x,), axis=len(names) - 1), names)
            case "count":
                self.put(make("count", (x,), axis=(0,)), ())
            case "concatenate" if len(names) == 2 and names[0] == "1":
                two = make("concatenate", (x, x), axis=0)
                self.put(make("getitem", (two,), index=(("i", 1),)), names[1:])


def sample(
    seed: int, symbols: dict[str, int], steps: int = 12, plain: bool = False, layout_seed: int = 0
) -> Sample:
    """Return the random DAG of `seed`."""
    builder = Builder(seed, symbols, plain, layout_seed)
    for _ in range(builder.rng.randint(1, 3)):
        builder.add_leaf()
    for _ in range(builder.rng.randint(0, 2)):
        builder.add_scalar()
    for _ in range(builder.rng.randint(1, steps)):
        builder.step()
    made = [h for h, _ in builder.values]
    count = builder.rng.randint(1, 3)
    roots = tuple(builder.rng.choice(made[-5:]) for _ in range(count))
    return Sample(roots, builder.leaves, made)


def binding(old: Sample, new: Sample) -> dict[int, int] | None:
    """Return which size of `old` became which in `new`; None if they are not of one class."""
    dims: dict[int, int] = {}
    for a, b in zip(topo(old.roots), topo(new.roots), strict=True):
        pairs = list(zip(a.meta.shape, b.meta.shape, strict=True))
        pairs += list(zip(*(dict(h.attrs).get("shape", ()) for h in (a, b)), strict=True))
        for n, m in pairs:
            if (n < 2 or m < 2) and n != m or dims.setdefault(n, m) != m:
                return None
    return dims if len(set(dims.values())) == len(dims) else None
