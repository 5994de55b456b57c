"""A loop nest as a program: functions of machine code, and the order they are run in.

Knows: which loops are shared out among threads, where allocated buffers lie. Must not know: how statements
become IR, schedules.
Receives nests; returns what runs them on arrays.

A parallel loop that no other one is around is shared out, unless turns update one place; loops around it
are run from here, turn after turn. What is allocated outside of it all threads have in common. Of what is
allocated inside, every thread that is at work has its own: it marks a slot as taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.codegen.flags import quiet
from jitla.codegen.indexing_code import ENTRY, block_head, pack_indexed
from jitla.codegen.jit import Jit, Library
from jitla.codegen.layout import Target, hints
from jitla.codegen.module import MathFunctions
from jitla.codegen.nest_code import NestWriter, Steps
from jitla.codegen.vector import refuse
from jitla.errors import BackendError, NestError
from jitla.nests import (
    Alloc,
    Apply,
    Buffer,
    Guard,
    Load,
    Loop,
    LoopKind,
    Nest,
    Statement,
    Store,
    Update,
    allocated,
    buffers_of,
    carried,
    intrinsics_of,
    rebuilt,
    verify,
)
from jitla.runtime import empty
from jitla.runtime import threads as runtime_threads

__all__ = ["CompiledNest"]

SLOTS = 63  # of memory that threads have of their own: a bit of a word each
LINE = 64  # bytes
CHUNKS = 8  # per thread, for uneven work
NS = 0.5  # of a statement, where nothing was measured
Body = tuple[Statement, ...]


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
        self._room = made.room(self._threads)

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
        room = empty((self._room,), np.dtype(np.uint8))  # anew: several threads may call
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

    def room(self, threads: int) -> int:
        """Return how many bytes its buffers take: slots in use, what is shared, what threads have."""
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
        for buffer in allocated(body):
            self._put(buffer, shared=False)
        writer = NestWriter(self.buffers, self.intrinsics, outer, self.lanes, self.math, self.steps_of)

        def write() -> None:
            if shared is None:
                writer.body(body)
            else:
                writer.turns(shared, "%begin", "%end")

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
                if shared and not carried(statement, around, buffers, intrinsics):
                    yield statement.name
                yield from look(statement.body, (*around, statement))
            elif isinstance(statement, Guard):
                yield from look(statement.body, around)

    yield from look(rebuilt(nest.body, statement=plainly), ())


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
