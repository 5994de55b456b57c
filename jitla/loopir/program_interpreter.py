"""Reference interpreter of loop programs.

It works on the same state as machine code, with addresses of real memory, but computes by NumPy's scalars and
Python's integers.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import operator
import platform
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import numpy as np

from jitla.hops import lookup
from jitla.loopir import program as ir
from jitla.loopir.program_state import Outcome, core_axes, find_ufunc, read_memory

__all__ = ["run_program"]

ALIGNMENT = 64  # bytes, of memory from the arena


class _Jump(Exception):
    """A jump to the end of a loop or block, or (`again`) to the next iteration of a loop."""

    def __init__(self, label: str, again: bool) -> None:
        super().__init__(label)
        self.label, self.again = label, again


class _Exit(Exception):
    """The program is left."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run_program(program: ir.LoopProgram, state: np.ndarray) -> Outcome:
    """Run `program` on `state`, of the words that `state_layout` describes, and return how it was left."""
    flags: set[str] = set()
    interpreter = _Interpreter(program, state, flags)
    with np.errstate(divide="call", over="call", invalid="call", under="ignore",
                     call=lambda kind, _: flags.add(kind)):
        number = interpreter.run()
    if not program.raises:
        return Outcome(number)
    return Outcome(number, "divide by zero" in flags, "overflow" in flags, "invalid value" in flags)


class _Interpreter:
    """Variables of one run: scalars as NumPy scalars, views as pointer, sizes and strides."""

    def __init__(self, program: ir.LoopProgram, state: np.ndarray, flags: set[str]) -> None:
        self.program, self.state, self.flags = program, state, flags
        self.layout = ir.state_layout(program)
        self.dtypes = {s.name: s.dtype for s in program.scalars}
        self.views = {v.name: v for v in program.views}
        self.values: dict[str, Any] = {s.name: s.dtype.type(0) for s in program.scalars}
        self.pointers: dict[str, int] = {v.name: 0 for v in program.views}
        self.sizes: dict[str, tuple[int, ...]] = {v.name: (0,) * v.ndim for v in program.views}
        self.strides: dict[str, tuple[int, ...]] = {v.name: (0,) * v.ndim for v in program.views}
        self.arena, self.arena_end = (int(w) for w in state[self.layout.arena : self.layout.arena + 2])
        self.halves = ir.uses_expiry(program)
        self.half = self.other_half = 0, 0
        self.loops = 0

    def run(self) -> int:
        """Run the program; return the number of its exit."""
        for name in self.program.parameters:
            word = self.layout.places[name]
            if name in self.dtypes:
                data = self.state.view(np.uint8)[8 * word : 8 * word + self.dtypes[name].itemsize].tobytes()
                self.values[name] = np.frombuffer(data, self.dtypes[name])[0]
                continue
            ndim = self.views[name].ndim
            words = [int(w) for w in self.state[word : word + 1 + 2 * ndim]]
            self.pointers[name] = words[0]
            self.sizes[name], self.strides[name] = tuple(words[1 : 1 + ndim]), tuple(words[1 + ndim :])
        try:
            self.body(self.program.body)
        except _Exit as left:
            self._give_back()
            return left.number
        raise AssertionError("the body of a program ends by an exit")

    def _give_back(self) -> None:
        for name in self.program.results:
            word = self.layout.places[name]
            if name in self.dtypes:
                data = np.frombuffer(self.values[name].tobytes(), np.uint8)
                self.state.view(np.uint8)[8 * word : 8 * word + len(data)] = data
                continue
            words = (self.pointers[name], *self.sizes[name], *self.strides[name])
            self.state[word : word + len(words)] = words

    # -- statements -----------------------------------------------------------------------------

    def body(self, body: Sequence[ir.Statement]) -> None:
        """Run statements."""
        for statement in body:
            self.statement(statement)

    def statement(self, statement: ir.Statement) -> None:
        """Run one statement."""
        match statement:
            case ir.Assign(name, value):
                self.values[name] = self.value(value)
            case ir.StoreElement(view, index, value):
                address = self.address(view, index)
                read_memory(address, self.views[view].dtype)[...] = self.value(value)
            case ir.BindView():
                self.bind(statement)
            case ir.BindMemory(name, place, shape, strides):
                self.pointers[name] = self.word(place)
                self.sizes[name] = tuple(map(self.word, shape))
                self.strides[name] = tuple(map(self.word, strides))
            case ir.Allocate():
                self.allocate(statement)
            case ir.If(test, then, otherwise):
                self.body(then if self.value(test) else otherwise)
            case ir.For(label, name, begin, end, step, body):
                counts = range(self.word(begin), self.word(end), step)
                self.iterate(label, body, (self.dtypes[name].type(count) for count in counts), name)
            case ir.Repeat(label, body):
                self.iterate(label, body, iter(int, 1), "")
            case ir.Block(label, body):
                try:
                    self.body(body)
                except _Jump as jump:
                    if jump.label != label:
                        raise
            case ir.Break(label):
                raise _Jump(label, False)
            case ir.Continue(label):
                raise _Jump(label, True)
            case ir.Check(test, number):
                if self.value(test):
                    raise _Exit(number)
            case ir.Leave(number):
                raise _Exit(number)
            case ir.InnerLoop():
                self.inner_loop(statement)
            case ir.Dot():
                self.dot(statement)
            case ir.Sort():
                self.sort(statement)

    def iterate(self, label: str, body: Sequence[ir.Statement], counts: Any, name: str) -> None:
        """Run a loop; the outermost one frees the memory of the arena in each iteration."""
        arena, end = self.arena, self.arena_end
        middle = arena + (end - arena) // 2
        if not self.loops:
            self.half, self.other_half = (middle, end), (arena, middle)
        for count in counts:
            if not self.loops:
                self.arena = arena
                if self.halves:
                    self.half, self.other_half = self.other_half, self.half
                    self.arena, self.arena_end = self.half
            if name:
                self.values[name] = count
            self.loops += 1
            try:
                self.body(body)
            except _Jump as jump:
                if jump.label != label:
                    raise
                if not jump.again:
                    return
            finally:
                self.loops -= 1

    def bind(self, statement: ir.BindView) -> None:
        """Assign a view."""
        source = statement.source
        address = self.pointers[source]
        strides = self.strides[source]
        new_sizes, new_strides = [], []
        for axis, value in statement.points:
            address += self.word(value) * strides[axis]
        for part in statement.axes:
            begin, length, step = (self.word(v) for v in (part.begin, part.length, part.step))
            new_sizes.append(length)
            if part.axis is None:
                new_strides.append(0)
                continue
            address += begin * strides[part.axis]
            new_strides.append(wrapped(strides[part.axis] * step))
        self.pointers[statement.name] = wrapped(address)
        self.sizes[statement.name], self.strides[statement.name] = tuple(new_sizes), tuple(new_strides)

    def allocate(self, statement: ir.Allocate) -> None:
        """Assign memory of the arena to a view."""
        shape = tuple(self.word(v) for v in statement.shape)
        view: ir.ViewVariable = self.views[statement.name]
        strides, step = [], view.dtype.itemsize
        for size in reversed(shape):
            if size < 0:
                raise _Exit(statement.exit)
            strides.append(step)
            step *= max(size, 1)
        size = 0 if 0 in shape else step
        needed = -(-size // ALIGNMENT) * ALIGNMENT
        begin = -(-self.arena // ALIGNMENT) * ALIGNMENT
        if step >= 2**64 or begin > self.arena_end or needed > self.arena_end - begin:
            raise _Exit(statement.exit)
        self.arena = begin + needed
        if statement.zero:
            ctypes.memset(begin, 0, size)
        self.pointers[view.name], self.sizes[view.name] = begin, shape
        self.strides[view.name] = tuple(reversed(strides))

    # -- routines -------------------------------------------------------------------------------

    def operand(self, operand: ir.Operand, copies: dict[str, np.ndarray]) -> tuple[int, np.dtype]:
        """Return the address and dtype of an operand; scalars are copied to memory."""
        if isinstance(operand, ir.Address):
            return self.address(operand.view, operand.index), self.views[operand.view].dtype
        if operand.name not in copies:
            copies[operand.name] = np.array(self.values[operand.name])
        return copies[operand.name].ctypes.data, self.dtypes[operand.name]

    def copy_back(self, copies: dict[str, np.ndarray]) -> None:
        """Assign the scalars that a routine was given the addresses of."""
        for name, memory in copies.items():
            self.values[name] = memory[()]

    def inner_loop(self, statement: ir.InnerLoop) -> None:
        """Compute what the inner loop of a ufunc computes."""
        copies: dict[str, np.ndarray] = {}
        operands = [self.operand(o, copies) for o in statement.operands]
        count, *core = (self.word(v) for v in statement.dims)
        steps = [self.word(v) for v in statement.steps]
        ufunc = find_ufunc(statement.routine.rsplit(".", 1)[0])
        assert ufunc is not None
        names, axes = core_axes(ufunc)
        sizes = dict(zip(names, core, strict=True))
        inner = iter(steps[ufunc.nargs :])
        arrays = []
        for k, (address, dtype) in enumerate(operands):
            own = axes[k] if axes else []
            shape = (count, *(sizes[name] for name in own))
            arrays.append(read_memory(address, dtype, shape, (steps[k], *(next(inner) for _ in own))))
        outputs = tuple(arrays[ufunc.nin :])
        reduces = ufunc.nin == 2 and ufunc.nout == 1 and not axes and operands[0] == operands[2]
        if reduces and steps[0] == steps[2] == 0 and count:
            outputs[0][:1] = ufunc.reduce(arrays[1], initial=arrays[0][0])
        elif count:
            is_quiet = ufunc.signature is not None and ufunc is not np.matmul  # flags of LAPACK mean nothing
            with np.errstate(all="ignore") if is_quiet else nullcontext():
                ufunc(*arrays[: ufunc.nin], out=outputs)
        self.copy_back(copies)

    def dot(self, statement: ir.Dot) -> None:
        """Compute what the `dot` function of a dtype computes."""
        copies: dict[str, np.ndarray] = {}
        length = self.word(statement.length)
        vectors = []
        for operand, step in ((statement.a, statement.a_step), (statement.b, statement.b_step)):
            address, dtype = self.operand(operand, copies)
            vectors.append(read_memory(address, dtype, (length,), (self.word(step),)))
        address, dtype = self.operand(statement.out, copies)
        read_memory(address, dtype)[...] = vectors[0] @ vectors[1]
        self.copy_back(copies)

    def sort(self, statement: ir.Sort) -> None:
        """Sort elements, or indices by the elements that they refer to."""
        values, length = statement.values, (self.word(statement.length),)
        kind: Any = statement.kind
        dtype = self.views[values.view].dtype
        elements = read_memory(self.address(values.view, values.index), dtype, length, (dtype.itemsize,))
        if statement.indices is None:
            elements[:] = np.sort(elements, kind=kind)
            return
        place = self.address(statement.indices.view, statement.indices.index)
        indices = read_memory(place, ir.INT64, length, (8,))
        indices[:] = indices[np.argsort(elements[indices], kind=kind)]

    # -- values ---------------------------------------------------------------------------------

    def call_c(self, name: str, args: Sequence[float]) -> float:
        """Return the result of a function of the C library, and note the floating-point flags that it raises.
        """
        function, library = _c_function(name, len(args)), ctypes.CDLL(ctypes.util.find_library("m"))
        library.feclearexcept(_ALL_FLAGS)
        result = function(*args)
        raised = library.fetestexcept(_ALL_FLAGS)
        self.flags |= {kind for bit, kind in _FLAGS.items() if raised & bit}
        return result

    def word(self, value: ir.Value) -> int:
        """Return an int64 value as a Python integer."""
        return int(self.value(value))

    def address(self, view: str, index: Sequence[ir.Value]) -> int:
        """Return the address of an element; without an index, of the first one."""
        steps = zip(index, self.strides[view], strict=False)
        return wrapped(self.pointers[view] + sum(self.word(i) * stride for i, stride in steps))

    def value(self, value: ir.Value) -> Any:
        """Return `value` as a NumPy scalar."""
        match value:
            case ir.Number(dtype, bits):
                return np.frombuffer(bits, dtype)[0]
            case ir.Read(name, _):
                return self.values[name]
            case ir.Element(view, index, dtype):
                return read_memory(self.address(view, index), dtype)[()]
            case ir.Extent(view, axis):
                return np.int64(self.sizes[view][axis])
            case ir.Stride(view, axis):
                return np.int64(self.strides[view][axis])
            case ir.Expires(view):
                low, high = self.other_half
                return np.bool_(low <= self.pointers[view] < high)
            case ir.Pointer(view, index):
                return np.int64(self.address(view, index))
            case ir.Checked(op, args, dtype, number):
                result = checked_result(op, [self.value(a) for a in args], dtype)
                if result is None:
                    raise _Exit(number)
                return result
            case ir.Foreign(function, args):
                return value.dtype.type(self.call_c(function, [float(self.value(a)) for a in args]))
            case ir.Apply(op, args, dtype, attrs):
                operands = [self.value(a) for a in cast(tuple[ir.Value, ...], args)]
                spec, keywords = lookup(op), dict(attrs)
                dtypes = spec.resolve(tuple(o.dtype for o in operands), keywords)
                operands = [o.astype(d) if o.dtype != d else o for o, d in zip(operands, dtypes, strict=True)]
                compute = operator.mul if keywords.pop("rounded", False) else spec.ref
                return np.asarray(compute(*operands, **keywords), dtype)[()]


def wrapped(word: int) -> int:
    """Return an integer modulo 2**64, as int64."""
    return (word + 2**63) % 2**64 - 2**63


def checked_result(op: str, args: Sequence[Any], dtype: np.dtype) -> Any:
    """Return the result of checked arithmetic, or None where the program is left."""
    if op == "cast":
        return _checked_cast(args[0], dtype)
    x, *others = map(int, args)
    y = others[0] if others else 0
    match op:
        case "add":
            exact = x + y
        case "sub":
            exact = x - y
        case "mul":
            exact = x * y
        case "neg":
            exact = -x
        case "shl":
            if not 0 <= y < 8 * dtype.itemsize:
                return None
            exact = x << y
        case _:
            if not y:
                return None
            exact = x // y if op == "floordiv" else x % y
    info = np.iinfo(dtype)
    return dtype.type(exact) if info.min <= exact <= info.max else None


def _checked_cast(x: Any, dtype: np.dtype) -> Any:
    if x.dtype == dtype:
        return x
    if x.dtype.kind == "f" and dtype.kind == "f" and dtype.itemsize > x.dtype.itemsize:
        return x.astype(dtype)
    if x.dtype.kind == "f" and not np.isfinite(x):
        narrow = dtype.kind == "f" and np.isinf(x)
        return x.astype(dtype) if narrow else None
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return dtype.type(int(x)) if int(x) == x and info.min <= int(x) <= info.max else None
    if dtype.kind == "b":
        return np.bool_(x == 1) if x in (0, 1) else None
    with np.errstate(all="ignore"):
        result = x.astype(dtype)
    if not np.isfinite(result):
        return None
    exact = int(result) == int(x) if x.dtype.kind in "iu" else float(result) == float(x)
    return result if exact else None


_FLAGS = {1: "invalid value", 4: "divide by zero", 8: "overflow"} \
    if platform.machine() in ("x86_64", "AMD64") else \
    {1: "invalid value", 2: "divide by zero", 4: "overflow"}
_ALL_FLAGS = sum(_FLAGS)
_c_functions: dict[str, Any] = {}


def _c_function(name: str, operands: int) -> Callable[..., float]:
    """Return a function of the C library."""
    if name not in _c_functions:
        try:
            function = getattr(ctypes.CDLL(None), name)
        except AttributeError:
            function = getattr(ctypes.CDLL(ctypes.util.find_library("m")), name)
        _c_functions[name] = function
    function = _c_functions[name]
    kind = ctypes.c_float if name in ir.FLOAT32_FUNCTIONS else ctypes.c_double
    function.restype, function.argtypes = kind, [kind] * operands
    found: Callable[..., float] = function
    return found
