"""Code generation from the loop IR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.codegen.indexing.gather import ENTRY, block_head, pack_indexed
from jitla.codegen.ir import Value, refuse
from jitla.codegen.ir_elementwise import LlvmBuilder, MathCall, quiet
from jitla.codegen.jit import Jit, Library
from jitla.codegen.kernel_abi import hints
from jitla.codegen.kernels.body import emit_cell
from jitla.codegen.module import MathFunctions
from jitla.codegen.target import Target
from jitla.errors import BackendError, NestError
from jitla.hops import lookup
from jitla.loopir import (
    Alloc,
    Apply,
    Buffer,
    Guard,
    Index,
    Intrinsic,
    Invoke,
    Load,
    Loop,
    LoopKind,
    Minimum,
    Nest,
    Number,
    Quotient,
    Remainder,
    Statement,
    Store,
    Update,
    Window,
    accesses,
    allocated_buffers,
    buffers_of,
    carried_dependence,
    intrinsics_of,
    number,
    rewrite_body,
    substitute_variables,
    value_range,
    verify,
)
from jitla.loopir import Value as Term
from jitla.runtime import empty
from jitla.runtime import threads as runtime_threads

__all__ = ["CompiledNest", "NestWriter", "Steps", "strides_of"]


UNROLLED = 256  # times that a statement is written at most; loops beyond that are run as usual
Body = tuple[Statement, ...]
Steps = Mapping[str, tuple[int, ...]]


def strides_of(buffer: Buffer) -> tuple[int, ...]:
    """Return how many bytes lie between neighbours along every axis."""
    steps, step = [], buffer.dtype.itemsize
    for size in reversed(buffer.shape):
        steps.append(step)
        step *= size
    return tuple(reversed(steps))


@dataclass(slots=True)
class _Level:
    """A loop that is being written: its variable, what is computed at the beginning of every turn."""

    name: str
    value: str
    ends: tuple[int, int]
    before: list[str] = field(default_factory=list)
    made: dict[object, str] = field(default_factory=dict)


class NestWriter:
    """Writes statements of one function; `outer` are variables that are given, with their ranges.

    `buffers` are all there are, each a pointer ``%<name>.p`` of the function; `steps` are how many bytes lie
    between neighbours, of those that do not lie in one run. Vectors have at most `lanes`.
    """

    def __init__(
        self, buffers: Mapping[str, Buffer], intrinsics: Mapping[str, Intrinsic],
        outer: Mapping[str, tuple[int, int]], lanes: int, math: MathCall, steps: Steps,
    ) -> None:
        self.steps = {name: steps.get(name) or strides_of(b) for name, b in buffers.items()}
        self.buffers, self.intrinsics = buffers, intrinsics
        self.lines: list[str] = []
        self.lanes, self.math = lanes, math
        self.levels = [_Level("", "", (0, 0))]
        self.levels += [_Level(name, f"%{name}.v", ends) for name, ends in outer.items()]
        self._builders: dict[int, LlvmBuilder] = {}
        self._count = 0
        self._copies = 1  # how often the statements that are written now are
        self._held: dict[str, Value] = {}  # what registers hold, in the turns that are written now

    def text(self) -> str:
        """Return the lines of the function so far, what is computed once first."""
        return "\n".join([*(line for level in self.levels for line in level.before), *self.lines]) + "\n"

    # ------------------------------------------------------------------ statements

    def body(self, body: Body, width: int = 1, lane: str = "") -> None:
        """Write statements for `width` iterations of the loop `lane` at a time."""
        registers = _registers(body)
        for statement in body:
            match statement:
                case Store(buffer, (), value) if buffer in registers:
                    self._held[buffer] = self._value(value, width, lane)
                case Store(buffer, index, value):
                    self._store(buffer, index, self._value(value, width, lane), width, lane)
                case Update(buffer, index, op, value):
                    old = self._load(buffer, index, width, lane)
                    new = self._value(value, width, lane)
                    made = emit_cell(self._builder(width), lookup(op), old.dtype, {}, [old, new])
                    self._store(buffer, index, made, width, lane)
                case Loop():
                    self._loop(statement)
                case Guard():
                    self._guard(statement, width, lane)
                case Invoke(name, windows):
                    self.body(self._invoked(self.intrinsics[name], windows))
                case Alloc():
                    pass  # where it lies is known

    def sequential_loop(self, loop: Loop, begin: str, end: str) -> None:
        """Write the iterations of `loop` from `begin` to `end`, without vectors."""
        self._turns(loop.name, (begin, end), 1, loop.extent, lambda: self.body(loop.body))

    def _loop(self, loop: Loop) -> None:
        if loop.kind is LoopKind.UNROLLED and self._copies * loop.extent <= UNROLLED:
            self._copies *= loop.extent
            for turn in range(loop.extent):
                self.body(substitute_variables(loop.body, {loop.name: number(turn)}))
            self._copies //= loop.extent
            return
        width = self._width(loop) if loop.kind is LoopKind.VECTORISED else 1
        whole = loop.extent - loop.extent % width if width > 1 else 0
        if whole:
            self._turns(loop.name, ("0", str(whole)), width, whole, lambda: self._abreast(loop, width))
        if whole < loop.extent:
            self.sequential_loop(loop, str(whole), str(loop.extent))

    def _turns(
        self, name: str, ends: tuple[str, str], step: int, extent: int, write: Callable[[], None]
    ) -> None:
        """Write a loop around what `write` writes."""
        tag = f"{name}.{self._number()}"
        level = _Level(name, f"%{tag}", (0, extent - 1))
        outside, self.lines = self.lines, []
        self.levels.append(level)
        self._retarget()
        write()
        self.levels.pop()
        inside, self.lines = self.lines, outside
        self._retarget()
        self.lines += [
            f"  br label %{tag}.in", f"{tag}.in:", f"  br label %{tag}.head", f"{tag}.head:",
            f"  %{tag} = phi i64 [ {ends[0]}, %{tag}.in ], [ %{tag}.next, %{tag}.end ]",
            f"  %{tag}.more = icmp slt i64 %{tag}, {ends[1]}",
            f"  br i1 %{tag}.more, label %{tag}.turn, label %{tag}.out", f"{tag}.turn:",
            *level.before, *inside,
            f"  br label %{tag}.end", f"{tag}.end:", f"  %{tag}.next = add i64 %{tag}, {step}",
            f"  br label %{tag}.head", f"{tag}.out:"]

    def _guard(self, guard: Guard, width: int, lane: str) -> None:
        """Write statements that are run only if a guard lets them."""
        if width > 1 and lane in guard.index.variables:
            self.body(guard.body, width, lane)  # it lets all lanes, or there were none
            return
        self.guarded(guard, lambda: self.body(guard.body, width, lane))

    def guarded(self, guard: Guard, write: Callable[[], None]) -> None:
        """Write what `write` does where `guard` holds."""
        self._choice([guard], write, None)

    def _choice(
        self, guards: list[Guard], then: Callable[[], None], other: Callable[[], None] | None
    ) -> None:
        """Write `then` where all `guards` hold, else `other`."""
        tag = f"guard.{self._number()}"
        holds = "true"
        for guard in guards:
            at = self._index(guard.index)
            fits = self._word(f"icmp slt i64 {at}, {guard.below}", self.lines)
            holds = fits if holds == "true" else self._word(f"and i1 {holds}, {fits}", self.lines)
        last = f"{tag}.out" if other is None else f"{tag}.else"
        self.lines += [f"  br i1 {holds}, label %{tag}.then, label %{last}", f"{tag}.then:"]
        then()
        self.lines.append(f"  br label %{tag}.out")
        if other is not None:
            self.lines.append(f"{last}:")
            other()
            self.lines.append(f"  br label %{tag}.out")
        self.lines.append(f"{tag}.out:")

    def _invoked(self, intrinsic: Intrinsic, windows: tuple[Window, ...]) -> Body:
        """Return what an intrinsic stands for, on windows of buffers."""
        operands = [b.name for b in intrinsic.operands]
        at = dict(zip(operands, windows, strict=True))

        def moved(x: Load) -> Load:
            window = at[x.buffer]
            return Load(window.buffer, tuple(a + b for a, b in zip(window.index, x.index, strict=True)))

        def statement(s: Statement) -> Statement:
            if isinstance(s, (Store, Update)):
                there = moved(Load(s.buffer, s.index))
                return replace(s, buffer=there.buffer, index=there.index)
            return s

        return rewrite_body(intrinsic.body, load=moved, statement=statement)

    # ------------------------------------------------------------------ turns side by side

    def _width(self, loop: Loop) -> int:
        """Return how many turns are run at a time; 1 where they cannot be."""
        if loop.extent < 2 or not self._is_even(loop):
            return 1
        return min(self.lanes, 1 << loop.extent.bit_length() - 1)

    def _is_even(self, loop: Loop) -> bool:
        """Tell whether neighbouring turns are at places evenly apart, and write no place twice."""
        def times(index: Index) -> int | None:
            mixed = any(not isinstance(a, str) and loop.name in a.of.variables for a, _ in index.terms)
            return None if mixed else dict(index.terms).get(loop.name, 0)

        registers = _registers(loop.body)
        if any(not isinstance(s, (Store, Update, Guard)) for s in _flat(loop.body)
               if not (isinstance(s, Alloc) and s.buffer.name in registers)):
            return False
        for found in accesses(loop.body, self.intrinsics):
            if found.buffer in registers:
                continue
            steps = self.steps[found.buffer]
            moves = [times(i) for i in found.subscript]
            if None in moves:
                return False
            if found.writes and not sum(m * s for m, s in zip(moves, steps, strict=True) if m):
                return False
            if any((times(g.index) or -1) < 0 for g in found.guards if loop.name in g.index.variables):
                return False
        return True

    def _abreast(self, loop: Loop, width: int) -> None:
        """Write some turns at a time; one by one where guards hold for some of them only."""
        guards = [g for g in _flat(loop.body) if isinstance(g, Guard) and loop.name in g.index.variables]
        if not guards:
            self.body(loop.body, width, loop.name)
            return
        first = self.levels[-1].value
        times = [dict(g.index.terms)[loop.name] for g in guards]
        last = [replace(g, index=g.index + t * (width - 1)) for g, t in zip(guards, times, strict=True)]

        def singly() -> None:
            end = self._word(f"add i64 {first}, {width}", self.lines)
            self.levels[-1].name += " "  # its variable is now that of the inner loop
            self.sequential_loop(loop, first, end)
            self.levels[-1].name = loop.name

        self._choice(last, lambda: self.body(loop.body, width, loop.name), singly)

    # ------------------------------------------------------------------ values

    def _value(self, value: Term, width: int, lane: str) -> Value:
        match value:
            case Load(buffer, ()) if buffer in self._held:
                return self._held[buffer]
            case Load(buffer, index):
                return self._load(buffer, index, width, lane)
            case Number(dtype, bits):
                return self._builder(width).const(np.frombuffer(bits, dtype)[0], dtype)
            case Apply(op, args, dtype, attrs):
                given = [self._value(a, width, lane) for a in args]
                return emit_cell(self._builder(width), lookup(op), dtype, dict(attrs), given)

    def _load(self, name: str, index: tuple[Index, ...], width: int, lane: str) -> Value:
        dtype, b = self.buffers[name].dtype, self._builder(width)
        at = self._pointer(name, index)
        step = self._step(name, index, lane) if width > 1 else dtype.itemsize
        if step == dtype.itemsize:
            return b.load(at, dtype)
        if step == 0:
            return replace(b.splat(at, dtype), fixed=False)  # it is the same in this turn alone
        if step == 2 * dtype.itemsize and dtype.kind != "c":
            return b.every_second(at, dtype)
        return b.gather(at, str(step), dtype)

    def _store(self, name: str, index: tuple[Index, ...], value: Value, width: int, lane: str) -> None:
        at, b = self._pointer(name, index), self._builder(width)
        step = self._step(name, index, lane) if width > 1 else value.dtype.itemsize
        if step == value.dtype.itemsize:
            b.store(value, at)
        else:
            b.scatter(value, at, str(step))

    def _step(self, name: str, index: tuple[Index, ...], lane: str) -> int:
        """Return how many bytes on an element of the next lane lies."""
        steps = self.steps[name]
        return sum(dict(i.terms).get(lane, 0) * s for i, s in zip(index, steps, strict=True))

    def _builder(self, width: int) -> LlvmBuilder:
        if width not in self._builders:
            self._builders[width] = LlvmBuilder(self.lines, width, self.math, prefix=f"v{width}.")
        return self._builders[width]

    def _retarget(self) -> None:
        for b in self._builders.values():
            b.lines = self.lines

    # ------------------------------------------------------------------ places

    def _pointer(self, name: str, index: tuple[Index, ...]) -> str:
        """Write the address of an element: what moves with a loop is added within it."""
        steps = self.steps[name]
        whole = number(0)
        for at, step in zip(index, steps, strict=True):
            whole = whole + at * step
        found = f"%{name}.p"
        for depth, level in enumerate(self.levels):
            terms = tuple(t for t in whole.terms if self._depth(t[0]) == depth)
            key = (found, terms)
            if terms and key not in level.made:
                by = self._sum(Index(terms), depth)
                level.made[key] = self._word(f"getelementptr i8, ptr {found}, i64 {by}", level.before)
            found = level.made[key] if terms else found
        return self._word(f"getelementptr i8, ptr {found}, i64 {whole.constant}", self.lines) \
            if whole.constant else found

    def _index(self, index: Index) -> str:
        """Write the number that an index is."""
        return self._sum(index, max((self._depth(a) for a, _ in index.terms), default=0))

    def _depth(self, atom: str | Quotient | Remainder | Minimum) -> int:
        """Return the innermost level whose variable is in `atom`."""
        names = {atom} if isinstance(atom, str) else atom.of.variables
        return max((n for n, level in enumerate(self.levels) if level.name in names), default=0)

    def _sum(self, index: Index, depth: int) -> str:
        level = self.levels[depth]
        if index in level.made:
            return level.made[index]
        total = str(index.constant) if index.constant or not index.terms else ""
        for atom, times in index.terms:
            one = self._atom(atom, depth)
            part = one if times == 1 else self._word(f"mul i64 {one}, {times}", level.before)
            total = self._word(f"add i64 {total}, {part}", level.before) if total else part
        level.made[index] = total
        return total

    def _atom(self, atom: str | Quotient | Remainder | Minimum, depth: int) -> str:
        if isinstance(atom, str):
            return next(level.value for level in reversed(self.levels) if level.name == atom)
        lines, of = self.levels[depth].before, self._sum(atom.of, depth)
        if isinstance(atom, Minimum):
            less = self._word(f"icmp slt i64 {of}, {atom.limit}", lines)
            return self._word(f"select i1 {less}, i64 {of}, i64 {atom.limit}", lines)
        ranges = {level.name: level.ends for level in self.levels}
        # what is added to make it no less than 0 is a multiple of the divisor
        lift = max(-(value_range(atom.of, ranges)[0] // atom.by), 0)
        lifted = self._word(f"add i64 {of}, {lift * atom.by}", lines) if lift else of
        if isinstance(atom, Remainder):
            return self._word(f"urem i64 {lifted}, {atom.by}", lines)
        found = self._word(f"udiv i64 {lifted}, {atom.by}", lines)
        return self._word(f"sub i64 {found}, {lift}", lines) if lift else found

    def _word(self, text: str, lines: list[str]) -> str:
        name = f"%w{self._number()}"
        lines.append(f"  {name} = {text}")
        return name

    def _number(self) -> int:
        self._count += 1
        return self._count


def _flat(body: Body) -> Iterator[Statement]:
    """Yield statements, and those that are guarded."""
    for statement in body:
        yield statement
        if isinstance(statement, Guard):
            yield from _flat(statement.body)


def _registers(body: Body) -> frozenset[str]:
    """Return the single values that `body` takes once and reads again behind that: they need no memory."""
    if any(isinstance(s, (Loop, Invoke)) for s in _flat(body)):
        return frozenset()
    once = Counter(s.buffer for s in _flat(body) if isinstance(s, (Store, Update)))

    def look(some: Body) -> Iterator[str]:
        stored = {s.buffer for s in some if isinstance(s, Store)}
        for s in some:
            if isinstance(s, Guard):
                yield from look(s.body)
            elif isinstance(s, Alloc) and not s.buffer.shape and s.buffer.name in stored:
                yield s.buffer.name

    return frozenset(name for name in look(body) if once[name] == 1)


SLOTS = 63  # of memory that threads have of their own: a bit of a word each
LINE = 64  # bytes
CHUNKS = 8  # per thread, for uneven work
NS = 0.5  # of a statement, where nothing was measured



@dataclass(frozen=True, slots=True)
class _Part:
    """A function: some statements, or the turns of a parallel loop; `outer` are variables it is given."""

    entry: str
    units: int
    outer: tuple[str, ...]
    work: float


@dataclass(frozen=True, slots=True)
class _Turns:
    """Steps that are run turn after turn."""

    name: str
    extent: int
    steps: tuple[_Step, ...]


_Step = _Part | _Turns


class CompiledNest:
    """A nest as machine code, run by `launch` on up to `threads` threads.

    Parts that are estimated to take less than `serial_ns` are not shared out. `steps` are how many bytes lie
    between neighbours, of inputs and outputs that do not lie in one run.
    """

    def __init__(
        self, nest: Nest, jit: Jit, launch: Callable[..., int], threads: int = 0, serial_ns: float = 0.0,
        steps: Steps = MappingProxyType({}),
    ) -> None:
        verify(nest)
        made = _Program(nest, jit.target, steps)
        self._nest, self._launch, self._serial_ns = nest, launch, serial_ns
        self._threads = min(threads or runtime_threads(), SLOTS)
        self._steps, self._operands = made.steps, made.operands
        self._library: Library = jit.load(made.text, tuple(made.entries))
        self._buffer_bytes = made.buffer_bytes(self._threads)

    @property
    def text(self) -> str:
        """The IR that it was made of."""
        return self._library.text

    def __call__(self, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the outputs; `arrays` are the inputs, and outputs if what is in them matters."""
        there = {b.name: _given(b, arrays) for b in self._nest.inputs}
        for b in self._nest.outputs:
            there[b.name] = _given(b, arrays).copy() if b.name in arrays else empty(b.shape, b.dtype)
        self.into(there)
        return {b.name: there[b.name] for b in self._nest.outputs}

    def into(self, arrays: Mapping[str, np.ndarray]) -> int:
        """Run it on these inputs and outputs: arrays that lie as it was made for, of its shapes and dtypes.

        Return the floating-point flags that were raised.
        """
        room = empty((self._buffer_bytes,), np.dtype(np.uint8))  # anew: several threads may call
        room[:LINE] = 0
        return self._run(self._steps, {}, [*[arrays[name] for name in self._operands], room])

    def _run(self, steps: tuple[_Step, ...], at: dict[str, int], operands: list[np.ndarray]) -> int:
        flags = 0
        for step in steps:
            if isinstance(step, _Turns):
                for turn in range(step.extent):
                    flags |= self._run(step.steps, {**at, step.name: turn}, operands)
                continue
            alone = step.work * NS < self._serial_ns or self._threads == 1
            grain = step.units if alone else max(step.units // (CHUNKS * self._threads), 1)
            template = pack_indexed(
                self._library.addresses[step.entry], len(operands), [at[n] for n in step.outer], step.units,
                grain, hints(step.work * NS, True, self._threads))
            flags |= self._launch(template, *operands)
        return flags


def _given(buffer: Buffer, arrays: Mapping[str, Any]) -> np.ndarray:
    array = np.ascontiguousarray(arrays[buffer.name]).reshape(np.shape(arrays[buffer.name]))
    if array.shape != buffer.shape or array.dtype != buffer.dtype:
        raise NestError("operand", f"{buffer.name} is {array.dtype}{array.shape}")
    return np.asarray(array)


class _Program:
    """What a nest becomes: the text of a module, and steps."""

    def __init__(self, nest: Nest, target: Target, steps: Steps) -> None:
        self.steps_of = steps
        self.buffers, self.intrinsics = buffers_of(nest), intrinsics_of(nest)
        self.operands = [b.name for b in (*nest.inputs, *nest.outputs)]
        for buffer in self.buffers.values():
            reason = refuse(buffer.dtype)
            if reason:
                raise BackendError(reason)
        self.lanes = max(target.lanes(max(b.dtype.itemsize for b in self.buffers.values())), 2)
        self.math = MathFunctions(self.lanes, "fma" in target.features)
        self._apart = frozenset(_apart(nest))
        self.entries: list[str] = []
        self.places: dict[str, int] = {}  # of allocated buffers: in what all have, or in a slot
        self.shared, self.own = LINE, 0
        self._shared_names: set[str] = set()
        texts: list[str] = []
        self.steps = tuple(self._cut(nest.body, {}, (), texts))
        self.own = -(-self.own // LINE) * LINE
        code = "".join(texts).replace("$own", str(self.own)).replace("$slots", str(self.shared))
        text = quiet(f"{self.math.text}{_CLAIM}{code}", target.features)
        self.text = f'target triple = "{target.triple}"\n{text}'

    def buffer_bytes(self, threads: int) -> int:
        """Return the bytes of all buffers: slots in use, shared ones, and those of each thread."""
        return self.shared + (threads + 1) * self.own + LINE

    def _cut(
        self, body: Body, outer: dict[str, tuple[int, int]], guards: tuple[Guard, ...], texts: list[str]
    ) -> Iterator[_Step]:
        """Yield steps: statements in which nothing is shared out stay together."""
        plain: list[Statement] = []
        for statement in body:
            if not self._shares((statement,)):
                plain.append(statement)
                if isinstance(statement, Alloc):
                    self._put(statement.buffer, shared=True)
                continue
            if plain:
                yield self._part(tuple(plain), None, outer, guards, texts)
                plain = []
            if isinstance(statement, Guard):
                yield from self._cut(statement.body, outer, (*guards, statement), texts)
            elif isinstance(statement, Loop) and statement.name in self._apart:
                yield self._part((statement,), statement, outer, guards, texts)
            elif isinstance(statement, Loop):
                ends = (0, statement.extent - 1)
                inside = self._cut(statement.body, {**outer, statement.name: ends}, guards, texts)
                yield _Turns(statement.name, statement.extent, tuple(inside))
        if any(not isinstance(s, Alloc) for s in plain):
            yield self._part(tuple(plain), None, outer, guards, texts)

    def _part(
        self, body: Body, shared: Loop | None, outer: dict[str, tuple[int, int]], guards: tuple[Guard, ...],
        texts: list[str],
    ) -> _Part:
        entry = f"k{len(self.entries)}"
        self.entries.append(entry)
        for buffer in allocated_buffers(body):
            self._put(buffer, shared=False)
        writer = NestWriter(self.buffers, self.intrinsics, outer, self.lanes, self.math, self.steps_of)

        def write() -> None:
            if shared is None:
                writer.body(body)
            else:
                writer.sequential_loop(shared, "%begin", "%end")

        for guard in reversed(guards):
            write = _guarded(writer, guard, write)
        write()
        texts.append(self._function(entry, tuple(outer), writer.text()))
        return _Part(entry, shared.extent if shared else 1, tuple(outer), _work(body))

    def _shares(self, body: Body) -> bool:
        """Tell whether there is a loop in `body` that is shared out."""
        return any(isinstance(s, Loop) and s.name in self._apart
                   or isinstance(s, (Loop, Guard)) and self._shares(s.body) for s in body)

    def _put(self, buffer: Buffer, shared: bool) -> None:
        """Find a place for a buffer, unless it has one."""
        if buffer.name in self.places:
            return
        size = int(np.prod(buffer.shape, dtype=np.int64)) * buffer.dtype.itemsize
        size = -(-size // LINE) * LINE + LINE
        if shared:
            self._shared_names.add(buffer.name)
            self.places[buffer.name], self.shared = self.shared, self.shared + size
        else:
            self.places[buffer.name], self.own = self.own, self.own + size

    def _function(self, entry: str, outer: tuple[str, ...], body: str) -> str:
        """Return the function `entry` around the lines of its body."""
        names = (*[f"{n}.p" for n in self.operands], "room")
        head = block_head(names, [f"{n}.v" for n in outer])
        lines = ["  %slot = call i64 @claim(ptr %room)", "  %slot.at = mul i64 %slot, $own",
                 "  %slot.from = add i64 %slot.at, $slots",
                 "  %own = getelementptr i8, ptr %room, i64 %slot.from"]
        for name, at in self.places.items():
            base = "%room" if name in self._shared_names else "%own"
            lines.append(f"  %{name}.p = getelementptr i8, ptr {base}, i64 {at}")
        start = ENTRY.replace("@k(", f"@{entry}(")
        end = "  call void @release(ptr %room, i64 %slot)\n  ret void\n}\n"
        return start + head + "\n".join(lines) + "\n" + body + end


def _guarded(writer: NestWriter, guard: Guard, write: Callable[[], None]) -> Callable[[], None]:
    return lambda: writer.guarded(guard, write)


def _apart(nest: Nest) -> Iterator[str]:
    """Yield the parallel loops no two turns of which write, or update, one place.

    Updates of whole numbers may change places with each other, but must not happen at once.
    """
    buffers, intrinsics = buffers_of(nest), intrinsics_of(nest)

    def plainly(s: Statement) -> Statement:
        if not isinstance(s, Update):
            return s
        old = Load(s.buffer, s.index)
        return Store(s.buffer, s.index, Apply(s.op, (old, s.value), buffers[s.buffer].dtype))

    def look(body: Body, around: tuple[Loop, ...]) -> Iterator[str]:
        for statement in body:
            if isinstance(statement, Loop):
                shared = statement.kind is LoopKind.PARALLEL
                if shared and not carried_dependence(statement, around, buffers, intrinsics):
                    yield statement.name
                yield from look(statement.body, (*around, statement))
            elif isinstance(statement, Guard):
                yield from look(statement.body, around)

    yield from look(rewrite_body(nest.body, statement=plainly), ())


def _work(body: Body) -> float:
    """Return how many statements are run."""
    total = 0.0
    for statement in body:
        if isinstance(statement, Loop):
            total += statement.extent * _work(statement.body)
        else:
            total += _work(statement.body) if isinstance(statement, Guard) else 1.0
    return total


#: @claim(room): a slot that nobody has; @release(room, slot): it is free again.
_CLAIM = """declare i64 @llvm.cttz.i64(i64, i1)
define internal i64 @claim(ptr %room) nounwind {
entry:
  %first = load atomic i64, ptr %room monotonic, align 8
  br label %try
try:
  %taken = phi i64 [ %first, %entry ], [ %other, %try ]
  %free = xor i64 %taken, -1
  %slot = call i64 @llvm.cttz.i64(i64 %free, i1 false)
  %bit = shl i64 1, %slot
  %more = or i64 %taken, %bit
  %swap = cmpxchg ptr %room, i64 %taken, i64 %more acq_rel acquire, align 8
  %other = extractvalue { i64, i1 } %swap, 0
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %done, label %try
done:
  ret i64 %slot
}
define internal void @release(ptr %room, i64 %slot) nounwind {
entry:
  %bit = shl i64 1, %slot
  %others = xor i64 %bit, -1
  %before = atomicrmw and ptr %room, i64 %others acq_rel, align 8
  ret void
}
"""
