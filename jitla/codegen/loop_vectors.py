"""Code of innermost loops of loop programs that are computed several iterations at a time.

A loop over full vectors comes before a loop over single iterations, which does what is left: the iterations
behind the last full vector, and all of them where a test fails that `jitla.loopir.vector_loops` has asked
for. Lanes compute what iterations compute, and no lane computes what no iteration does, so results and
floating-point flags are the same. What is the same in all iterations is computed before both loops, addresses
at counter 0 among it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, cast

import numpy as np

from jitla.classes import dataclass
from jitla.codegen.exact_text import ExactText, VectorLoopText
from jitla.codegen.ir import Value, element_type
from jitla.codegen.scalar_text import ScalarText
from jitla.codegen.target import Target
from jitla.errors import BackendError
from jitla.loopir import (
    INT64,
    Apply,
    Assign,
    Check,
    Element,
    Linear,
    LinearAccess,
    Number,
    Read,
    Reduction,
    ScalarVariable,
    StoreElement,
    VectorLoop,
    ViewVariable,
    variables_of_value,
)
from jitla.loopir import ProgramValue as Term

__all__ = ["WrittenLoop", "write_loop"]

_IDENTITIES = {"add": 0, "multiply": 1, "bitwise_or": 0, "bitwise_xor": 0, "bitwise_and": -1,
               "logical_and": 1, "logical_or": 0}
_COMBINED = {"add": "add", "multiply": "mul", "bitwise_or": "or", "bitwise_xor": "xor", "bitwise_and": "and",
             "logical_and": "and", "logical_or": "or"}


class ProgramWriter(Protocol):
    """What the writer of a program does for its vectors."""

    lines: list[str]
    b: ScalarText
    target: Target
    scalars: dict[str, ScalarVariable]
    views: dict[str, ViewVariable]

    def value(self, value: Term) -> Value:
        """Write the instructions that compute a value of one iteration."""
        ...

    def moved(self, view: str, offsets: Sequence[tuple[int, Value]]) -> str:
        """Write the address that is some elements further along some axes."""
        ...

    def view_word(self, view: str, kind: str, axis: int) -> str:
        """Return the "size" or "stride" of an axis."""
        ...

    def operator(self, b: ExactText, value: Apply, args: Sequence[Value]) -> Value:
        """Write an operator of the op table by its recipe."""
        ...

    def assign(self, scalar: ScalarVariable, x: Value) -> None:
        """Write an assignment to a scalar variable."""
        ...

    def exit_if(self, test: str, number: int) -> None:
        """Leave the program by an exit where a test holds."""
        ...

    def fresh(self, hint: str) -> str:
        """Return an unused name."""
        ...


@dataclass(frozen=True, slots=True)
class WrittenLoop:
    """The code of a loop that has iterations.

    `lines` come first; they end by the head of the block `rest`, in which the loop over single iterations
    begins, with the counter `start`. `single` are the lines of one of these.
    """

    lines: list[str]
    start: str
    single: list[str]


def write_loop(writer: ProgramWriter, loop: VectorLoop, begin: str, end: str, counter: str, entry: str,
               rest: str, behind: str) -> WrittenLoop:
    """Write a loop from `begin` to `end`, which is entered from block `entry`, and left to block `behind`.

    `counter` is the register of the counter of single iterations.
    """
    common = _Common(writer, loop)
    vectors = _VectorWriter(common)
    vectors.write_body()
    single = _SingleWriter(common, counter)
    single.write_body()
    lines, start = vectors.assembled(begin, end, entry, rest, behind)
    return WrittenLoop(lines, start, single.body)


class _Common:
    """What is computed before a loop: invariants, and addresses and linear functions at counter 0."""

    def __init__(self, writer: ProgramWriter, plan: VectorLoop) -> None:
        self.w, self.plan, self.loop = writer, plan, plan.loop
        self.tag = writer.fresh("v")
        self.lines: list[str] = []
        self._invariants: dict[Term, Value] = {}
        self._starts: dict[Linear, str] = {}
        self._bases: dict[tuple[str, tuple[Linear, ...]], str] = {}
        self._steps: dict[tuple[str, tuple[Linear, ...]], str] = {}

    @contextmanager
    def into(self, lines: list[str]) -> Iterator[None]:
        """Let the writer of the program write to `lines`."""
        outer = self.w.lines
        self.w.lines = self.w.b.lines = lines
        try:
            yield
        finally:
            self.w.lines = self.w.b.lines = outer

    def name(self, hint: str) -> str:
        """Return the register `hint` of this loop."""
        return f"%{self.tag}.{hint}"

    def invariant(self, value: Term) -> Value:
        """Return a value that is the same in all iterations."""
        found = self._invariants.get(value)
        if found is None:
            with self.into(self.lines):
                found = self._invariants[value] = self.w.value(value)
        return found

    def start(self, linear: Linear) -> str:
        """Return a linear function at counter 0."""
        found = self._starts.get(linear)
        if found is None:
            total = str(linear.constant)
            for term, times in linear.terms:
                text = self.invariant(term).text
                with self.into(self.lines):
                    if times != 1:
                        text = self.w.b.line(f"mul i64 {text}, {times}")
                    total = text if total == "0" else self.w.b.line(f"add i64 {total}, {text}")
            found = self._starts[linear] = total
        return found

    def base(self, access: LinearAccess) -> str:
        """Return the address of an access at counter 0."""
        key = access.view, access.index
        found = self._bases.get(key)
        if found is None:
            index = [(axis, Value(INT64, self.start(linear))) for axis, linear in enumerate(access.index)]
            with self.into(self.lines):
                found = self._bases[key] = self.w.moved(access.view, index)
        return found

    def step(self, access: LinearAccess) -> str:
        """Return the bytes between the elements of neighbouring iterations."""
        key = access.view, access.index
        found = self._steps.get(key)
        if found is None:
            found = "0"
            with self.into(self.lines):
                for axis, linear in enumerate(access.index):
                    if linear.factor:
                        own = self.w.view_word(access.view, "stride", axis)
                        if linear.factor != 1:
                            own = self.w.b.line(f"mul i64 {own}, {linear.factor}")
                        found = own if found == "0" else self.w.b.line(f"add i64 {found}, {own}")
            self._steps[key] = found
        return found


class _IterationWriter:
    """Writes the statements of one iteration, or of a vector of them, with `v`.

    `scalars` are the values of variables that the iteration has assigned, `known` those of all terms.
    """

    def __init__(self, common: _Common, v: ScalarText | VectorLoopText, counter: str) -> None:
        self.common, self.w, self.plan, self.loop = common, common.w, common.plan, common.loop
        self.v, self.counter = v, counter
        self.body: list[str] = []
        self.known: dict[Term, Value] = {}
        self.scalars: dict[str, Value] = {}

    def write_body(self) -> None:
        """Write all statements."""
        for statement in self.loop.body:
            match statement:
                case Assign(name, value):
                    self.assign(name, value)
                    for term in [term for term in self.known if name in variables_of_value(term)]:
                        del self.known[term]
                case StoreElement(view, index, value):
                    self.store(self.plan.accesses[view, index], self.value(value))
                    for term in [term for term in self.known if _has_elements(term)]:
                        del self.known[term]
                case Check(test, number):
                    self.check(self.value(test), number)
                case _:
                    raise BackendError("a statement that has no vectors")

    def assign(self, name: str, value: Term) -> None:
        """Write an assignment."""
        raise NotImplementedError

    def check(self, test: Value, number: int) -> None:
        """Write a check."""
        raise NotImplementedError

    def load(self, access: LinearAccess, dtype: np.dtype) -> Value:
        """Write a load."""
        raise NotImplementedError

    def store(self, access: LinearAccess, x: Value) -> None:
        """Write a store."""
        raise NotImplementedError

    def same(self, x: Value) -> Value:
        """Return a scalar that is the same in all iterations as a value of this iteration."""
        raise NotImplementedError

    def linear(self, linear: Linear) -> Value:
        """Return a linear function of the counter."""
        raise NotImplementedError

    def value(self, value: Term) -> Value:
        """Write a value, unless it is there."""
        found = self.known.get(value)
        if found is None:
            found = self.known[value] = self.written(value)
        return found

    def written(self, value: Term) -> Value:
        """Write a value."""
        if isinstance(value, Number):
            return self.v.const(np.frombuffer(value.bits, value.dtype)[0], value.dtype)
        if isinstance(value, Read) and value.name in self.scalars:
            return self.scalars[value.name]
        values = self.plan.values
        linear = values.linear_of(value)
        if linear is not None and linear.factor:
            return self.linear(linear)
        if values.is_invariant(value):
            return self.same(self.common.invariant(value))
        match value:
            case Element(view, index, dtype):
                return self.load(self.plan.accesses[view, index], dtype)
            case Apply(_, args):
                self.require_quiet(value)
                return self.w.operator(self.v, value, [self.value(a) for a in cast(tuple[Term, ...], args)])
        raise BackendError("a value that has no vectors")

    def require_quiet(self, value: Apply) -> None:
        """Refuse comparisons of vectors that raise flags where those of scalars do not."""

    def scaled(self, factor: int, rest: str) -> str:
        """Write ``factor * counter + rest``."""
        text = self.counter if factor == 1 else self.v.line(f"mul i64 {self.counter}, {factor}")
        return text if rest == "0" else self.v.line(f"add i64 {text}, {rest}")

    def pointer(self, access: LinearAccess, size: int, is_unit: bool) -> str:
        """Write the address of an access."""
        base = self.common.base(access)
        if is_unit:
            return self.v.line(f"getelementptr [{size} x i8], ptr {base}, i64 {self.counter}")
        step = self.common.step(access)
        if step == "0":
            return base
        offset = self.v.line(f"mul nsw i64 {self.counter}, {step}")
        return self.v.line(f"getelementptr i8, ptr {base}, i64 {offset}")


class _SingleWriter(_IterationWriter):
    """Writes one iteration."""

    def __init__(self, common: _Common, counter: str) -> None:
        super().__init__(common, common.w.b, counter)

    def write_body(self) -> None:
        """Write all statements, and the assignment of the counter."""
        with self.common.into(self.body):
            self.w.assign(self.w.scalars[self.loop.name], Value(INT64, self.counter))
            super().write_body()

    def assign(self, name: str, value: Term) -> None:
        """Write an assignment to the variable."""
        x = self.value(value)
        self.w.assign(self.w.scalars[name], x)
        if name not in self.plan.reductions:
            self.scalars[name] = x

    def written(self, value: Term) -> Value:
        """Write a value: what a reduction has come to is that of its variable."""
        if isinstance(value, Read) and value.name in self.plan.reductions:
            return self.w.value(value)
        return super().written(value)

    def check(self, test: Value, number: int) -> None:
        """Leave the program where a test holds."""
        self.w.exit_if(test.text, number)

    def load(self, access: LinearAccess, dtype: np.dtype) -> Value:
        """Write the load of an element."""
        return self.v.load(self.pointer(access, dtype.itemsize, False), dtype)

    def store(self, access: LinearAccess, x: Value) -> None:
        """Write the store of an element."""
        self.v.store(x, self.pointer(access, x.dtype.itemsize, False))

    def same(self, x: Value) -> Value:
        """Return the scalar."""
        return x

    def linear(self, linear: Linear) -> Value:
        """Write a linear function of the counter."""
        return Value(INT64, self.scaled(linear.factor, self.common.start(linear)))


class _VectorWriter(_IterationWriter):
    """Writes vectors of iterations."""

    def __init__(self, common: _Common) -> None:
        width = max(1, common.w.target.vector_bytes // common.plan.itemsize)
        if width == 1:
            raise BackendError("vectors of one element")
        v = VectorLoopText([], width, common.w.b.flags, prefix=f"{common.tag}.t")
        v.fuses = common.w.b.fuses
        super().__init__(common, v, common.name("i"))
        self.vectors = v
        v.lines = self.body
        self.width = width
        self.splats: dict[Value, Value] = {}
        self.totals: dict[str, Value] = {}
        self.bails: list[str] = []  # blocks in which a check has failed
        self.accumulators = {
            name: self.accumulator(reduction) for name, reduction in self.plan.reductions.items()}

    def block(self, hint: str) -> str:
        """Return the block `hint` of this loop."""
        return f"{self.common.tag}.{hint}"

    def name(self, hint: str) -> str:
        """Return the register `hint` of this loop."""
        return self.common.name(hint)

    # -- the loop -------------------------------------------------------------------------------

    def assembled(self, begin: str, end: str, entry: str, rest: str, behind: str) -> tuple[list[str], str]:
        """Return all blocks, and the counter with which single iterations begin."""
        tests: list[str] = []
        holds = self.tests(begin, end, tests)
        following, stop = self.name("i.next"), self.name("end")
        lines = [*self.common.lines, *tests, f"  br i1 {holds}, label %{self.block('enter')}, label %{rest}",
                 f"{self.block('enter')}:",
                 f"  br label %{self.block('body')}", f"{self.block('body')}:",
                 f"  {self.counter} = phi i64 [ {begin}, %{self.block('enter')} ], "
                 f"[ {following}, %{self.block('latch')} ]"]
        for name, (first, total) in self.accumulators.items():
            kind = self.v.type(total.dtype)
            lines.append(f"  {total.text} = phi {kind} [ {first}, %{self.block('enter')} ], "
                         f"[ {self.totals[name].text}, %{self.block('latch')} ]")
        lines += [*self.body, f"  br label %{self.block('latch')}", f"{self.block('latch')}:",
                  f"  {following} = add nsw i64 {self.counter}, {self.width}",
                  f"  {self.name('more')} = icmp slt i64 {following}, {stop}",
                  f"  br i1 {self.name('more')}, label %{self.block('body')}, label %{self.block('out')}",
                  f"{self.block('out')}:"]
        if self.bails:
            at = [f"[ {stop}, %{self.block('latch')} ]",
                  *(f"[ {self.counter}, %{block} ]" for block in self.bails)]
            stop = self.name("at")
            lines.append(f"  {stop} = phi i64 {', '.join(at)}")
        after: list[str] = []
        for name, (_, total) in self.accumulators.items():
            result = self.totals[name].text
            if self.bails:
                values = [f"[ {result}, %{self.block('latch')} ]",
                          *(f"[ {total.text}, %{block} ]" for block in self.bails)]
                result = f"{total.text}.all"
                lines.append(f"  {result} = phi {self.v.type(total.dtype)} {', '.join(values)}")
            with self.common.into(after):
                self.finish(self.plan.reductions[name], Value(total.dtype, result))
        done, start = self.name("done"), self.name("start")
        lines += [*after, f"  {done} = icmp eq i64 {stop}, {end}",
                  f"  br i1 {done}, label %{behind}, label %{rest}", f"{rest}:",
                  f"  {start} = phi i64 [ {begin}, %{entry} ], [ {stop}, %{self.block('out')} ]"]
        return lines, start

    def tests(self, begin: str, end: str, lines: list[str]) -> str:
        """Write the test whether vectors are used; and where they end."""
        spans = [[self.span(access, begin, end) for access in pair] for pair in self.plan.apart]
        with self.common.into(lines):
            line = self.w.b.line
            count = line(f"sub i64 {end}, {begin}")
            if self.plan.keeps_last:
                count = line(f"sub i64 {count}, 1")
            full = line(f"and i64 {count}, {-self.width}")
            lines.append(f"  {self.name('end')} = add nsw i64 {begin}, {full}")
            result = line(f"icmp sgt i64 {full}, 0")
            for test in dict.fromkeys(self.stride_tests()):
                result = line(f"and i1 {result}, {line(test)}")
            for (low, high), (first, behind) in spans:
                below, above = line(f"icmp ule i64 {high}, {first}"), line(f"icmp ule i64 {behind}, {low}")
                result = line(f"and i1 {result}, {line(f'or i1 {below}, {above}')}")
        return result

    def stride_tests(self) -> Iterator[str]:
        """Return the tests whether views have the strides that vectors are written for."""
        for access in self.plan.accesses.values():
            for axis, kind in access.strides:
                stride = self.w.view_word(access.view, "stride", axis)
                wanted = str(self.w.views[access.view].dtype.itemsize) if kind == "unit" else "0"
                if stride != wanted:
                    yield f"icmp eq i64 {stride}, {wanted}"

    def span(self, access: LinearAccess, begin: str, end: str) -> tuple[str, str]:
        """Write the addresses of the first byte of an access, and of that behind the last one."""
        base, step = self.common.base(access), self.common.step(access)
        with self.common.into(self.common.lines):
            line = self.w.b.line
            last = line(f"sub i64 {end}, 1")
            ends = []
            for at in (begin, last):
                offset = line(f"mul i64 {at}, {step}")
                ends.append(line(f"add i64 {line(f'ptrtoint ptr {base} to i64')}, {offset}"))
            low = line(f"call i64 @llvm.umin.i64(i64 {ends[0]}, i64 {ends[1]})")
            high = line(f"call i64 @llvm.umax.i64(i64 {ends[0]}, i64 {ends[1]})")
            return low, line(f"add i64 {high}, {self.w.views[access.view].dtype.itemsize}")

    # -- statements -----------------------------------------------------------------------------

    def assign(self, name: str, value: Term) -> None:
        """Write the value of a variable, or a step of a reduction; linear functions are written at use."""
        if name in self.plan.values.linear:
            return
        reduction = self.plan.reductions.get(name)
        if reduction is None:
            self.scalars[name] = self.value(value)
        else:
            x = self.value(reduction.value)
            result = self.w.operator(self.v, Apply(reduction.op, (), x.dtype), [self.totals[name], x])
            if result.dtype != x.dtype:
                raise BackendError("a reduction that changes its dtype")
            self.totals[name] = result

    def check(self, test: Value, number: int) -> None:
        """Go on with single iterations where a check fails in any lane."""
        failed = self.vectors.any_lane(test)
        here, fine = self.block(f"check{len(self.bails)}"), self.block(f"fine{len(self.bails)}")
        self.bails.append(here)
        self.body += [f"  br label %{here}", f"{here}:",
                      f"  br i1 {failed}, label %{self.block('out')}, label %{fine}", f"{fine}:"]

    def load(self, access: LinearAccess, dtype: np.dtype) -> Value:
        """Write the load of a vector."""
        if access.kind == "same":
            return self.v.splat(self.common.base(access), dtype)
        pointer = self.pointer(access, dtype.itemsize, access.kind == "unit")
        return self.v.load(pointer, dtype) if access.kind == "unit" else \
            self.v.gather(pointer, self.common.step(access), dtype)

    def store(self, access: LinearAccess, x: Value) -> None:
        """Write the store of a vector."""
        pointer = self.pointer(access, x.dtype.itemsize, access.kind == "unit")
        if access.kind == "unit":
            self.v.store(x, pointer)
        else:
            self.v.scatter(x, pointer, self.common.step(access))

    # -- reductions -----------------------------------------------------------------------------

    def accumulator(self, reduction: Reduction) -> tuple[str, Value]:
        """Return what a reduction begins with, and the register of its vector."""
        name, op = reduction.name, reduction.op
        scalar = self.w.scalars[name]
        if scalar.dtype.kind == "b" and op not in ("bitwise_or", "bitwise_and", "logical_or", "logical_and"):
            raise BackendError(f"a reduction of bools by {op} has no vectors")
        total = Value(scalar.dtype, self.name(f"sum{len(self.totals)}"))
        self.totals[name] = total
        if op in _IDENTITIES:
            return self.v.const(_IDENTITIES[op], scalar.dtype).text, total
        with self.common.into(self.common.lines):
            first = self.w.value(Read(name, scalar.dtype))
        return self.same(first).text, total

    def finish(self, reduction: Reduction, total: Value) -> None:
        """Write the combination of all lanes with what the scalar was."""
        scalar, kind = self.w.scalars[reduction.name], element_type(total.dtype)
        if reduction.op in _COMBINED:
            how = _COMBINED[reduction.op]
        else:
            sign = "s" if total.dtype.kind == "i" else "u"
            how = f"{sign}{'max' if reduction.op == 'maximum' else 'min'}"
        vector = self.v.type(total.dtype)
        lanes = Value(total.dtype, self.w.b.line(
            f"call {kind} @llvm.vector.reduce.{how}.v{self.width}{kind}({vector} {total.text})"))
        before = self.w.value(Read(reduction.name, scalar.dtype))
        both = self.w.operator(self.w.b, Apply(reduction.op, (), scalar.dtype), [before, lanes])
        self.w.assign(scalar, both)

    # -- values ---------------------------------------------------------------------------------

    def require_quiet(self, value: Apply) -> None:
        """Refuse comparisons of vectors that raise flags where those of scalars do not."""
        if self.v.flags and "avx" not in self.w.target.features and value.op in _ORDERS and any(
                getattr(arg, "dtype", INT64).kind in "fc" for arg in value.args):
            raise BackendError("comparisons of vectors that raise flags")

    def same(self, x: Value) -> Value:
        """Return a scalar in every lane, written before the loop."""
        found = self.splats.get(x)
        if found is None:
            self.v.lines = self.common.lines
            found = self.splats[x] = self.vectors.splat_of(x)
            self.v.lines = self.body
        return found

    def linear(self, linear: Linear) -> Value:
        """Write a linear function of the counter in each lane."""
        vector = self.v.type(INT64)
        lanes = ", ".join(f"i64 {linear.factor * lane}" for lane in range(self.width))
        first = self.scaled(linear.factor, self.common.start(linear))
        splat = self.vectors.splat_of(Value(INT64, first))
        return Value(INT64, self.v.line(f"add {vector} {splat.text}, <{lanes}>"))


def _has_elements(term: Term) -> bool:
    """Return whether a value reads memory."""
    if isinstance(term, Element):
        return True
    return isinstance(term, Apply) and any(map(_has_elements, cast(tuple[Term, ...], term.args)))


_ORDERS = frozenset({"less", "less_equal", "greater", "greater_equal", "maximum", "minimum", "fmax", "fmin",
                     "clip", "sign", "heaviside", "cast", "where", "absolute"})
