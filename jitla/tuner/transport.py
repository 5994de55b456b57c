"""Serialisation of a kernel for another process: its hops, its sizes, and the memory it runs on."""

from __future__ import annotations

import ctypes
import io
import pickle
from collections.abc import Mapping, Sequence
from math import prod
from typing import IO, Any, NamedTuple

import numpy as np

from jitla.classes import dataclass
from jitla.hops import Hop, const, const_value, leaf, make, topo

__all__ = [
    "Job", "Memory", "Unsendable", "head_of", "packed", "receive", "receive_job", "send", "send_job",
    "unpacked",
]

PAGE = 4096
LARGEST = 2 << 30  # bytes of operands that are copied for another process
HEAD = 8  # bytes that say how many follow

Array = np.ndarray[Any, Any]


class Unsendable(Exception):
    """What a kernel works on cannot be sent to another process."""


# ---------------------------------------------------------------------- hops


class _Writer(pickle.Pickler):
    """Writes hops as numbers; `rows` says what they are, each after those it is made of."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.numbers: dict[Hop, int] = {}
        self.rows: list[tuple[Any, ...]] = []

    def persistent_id(self, thing: Any) -> int | None:
        """Return the number of a hop; other things are written as they are."""
        if not isinstance(thing, Hop):
            return None
        if thing not in self.numbers:
            for hop in topo((thing,)):
                if hop not in self.numbers:
                    self.numbers[hop] = len(self.numbers)
                    self.rows.append(_row(hop, self.numbers))
        return self.numbers[thing]


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, rows: Sequence[tuple[Any, ...]]) -> None:
        super().__init__(file)
        self.hops: list[Hop] = []
        for name, inputs, attrs, value in rows:
            given = dict(attrs)
            if name == "leaf":
                self.hops.append(leaf(given["slot"], value, given["form"]))
            elif name == "const":
                self.hops.append(const(value, value.dtype))
            else:
                self.hops.append(make(name, [self.hops[i] for i in inputs], **given))

    def persistent_load(self, number: int) -> Hop:
        """Return the hop of a number."""
        return self.hops[number]


def _row(hop: Hop, numbers: dict[Hop, int]) -> tuple[Any, ...]:
    value = hop.meta if hop.op.name == "leaf" else const_value(hop) if hop.op.name == "const" else None
    return hop.op.name, tuple(numbers[i] for i in hop.inputs), hop.attrs, value


def packed(thing: Any) -> bytes:
    """Return `thing`, with all hops in it, as bytes; raise `Unsendable` if it has no such form."""
    file = io.BytesIO()
    writer = _Writer(file)
    try:
        writer.dump(thing)
        return pickle.dumps((writer.rows, file.getvalue()), protocol=5)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise Unsendable(f"it cannot be written down: {error}") from error


def unpacked(data: bytes) -> Any:
    """Return what was packed."""
    rows, rest = pickle.loads(data)
    return _Reader(io.BytesIO(rest), rows).load()


# ---------------------------------------------------------------------- memory


class Place(NamedTuple):
    """Where an array lies: a part of memory, bytes from its beginning on."""

    part: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype


@dataclass(slots=True)
class Memory:
    """Operands of a kernel, and a copy of the memory they lie in: once where arrays share it.

    What is in the results, which are the last, is not copied. `lead` says of each part where in a page it
    begins.
    """

    places: list[Any]
    parts: list[Array]
    lead: list[int]

    @classmethod
    def of(cls, operands: Sequence[Any], outputs: int) -> Memory:
        """Copy what `operands` are; raise `Unsendable` if that is too much, or if results are read."""
        given = [_bounds(x) for x in operands if isinstance(x, np.ndarray)]
        wrong = [x for x in operands if not isinstance(x, (np.ndarray, np.generic, int, float, complex))
                 or isinstance(x, np.ndarray) and x.dtype.hasobject]
        if wrong:
            raise Unsendable(f"it works on an object of {type(wrong[0]).__name__}")
        results = [_bounds(x) for x in operands[len(operands) - outputs:]]
        read = given[:len(given) - outputs]
        if any(a < d and c < b for a, b in results for c, d in read):
            raise Unsendable("it writes where it reads")
        spans = _merged(given)
        if sum(b - a for a, b in spans) > LARGEST:
            raise Unsendable("it works on too much memory to copy")
        written = [any(a <= r < b for r, _ in results) for a, b in spans]
        parts = [np.zeros(b - a, np.uint8) if w else _copy(a, b - a)
                 for (a, b), w in zip(spans, written, strict=True)]
        return cls([_placed(x, spans) for x in operands], parts, [a % PAGE for a, _ in spans])

    def operands(self) -> tuple[Any, ...]:
        """Return operands like those that were copied, in memory of their own."""
        made = []
        for part, lead in zip(self.parts, self.lead, strict=True):
            room = np.empty(part.size + PAGE, np.uint8)
            start = (lead - room.ctypes.data) % PAGE
            made.append(room[start:start + part.size])
            made[-1][:] = part
        return tuple(
            np.ndarray(p.shape, p.dtype, made[p.part].data, p.offset, p.strides) if isinstance(p, Place)
            else p for p in self.places)


def _bounds(x: Array) -> tuple[int, int]:
    """Return where the memory of an array begins and ends; an empty one has one byte."""
    if not x.size:
        return x.ctypes.data, x.ctypes.data + 1
    steps = [s * (n - 1) for s, n in zip(x.strides, x.shape, strict=True)]
    first = x.ctypes.data + sum(s for s in steps if s < 0)
    return first, x.ctypes.data + sum(s for s in steps if s > 0) + x.itemsize


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans of memory, those that overlap as one."""
    found: list[tuple[int, int]] = []
    for a, b in sorted(spans):
        if found and a < found[-1][1]:
            found[-1] = found[-1][0], max(b, found[-1][1])
        else:
            found.append((a, b))
    return found


def _copy(start: int, size: int) -> Array:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start)).copy()


def _placed(x: Any, spans: Sequence[tuple[int, int]]) -> Any:
    if not isinstance(x, np.ndarray):
        return x
    at = x.ctypes.data
    part = next(k for k, (a, b) in enumerate(spans) if a <= _bounds(x)[0] < b)
    return Place(part, at - spans[part][0], x.shape, x.strides if prod(x.shape) else (0,) * x.ndim, x.dtype)


# ---------------------------------------------------------------------- messages


class Job(NamedTuple):
    """A kernel that other processes run: what it is bound to, what it is run on, by which options."""

    parcel: Any
    memory: Memory
    outputs: int
    options: Mapping[str, Any]


def send(file: IO[bytes], data: bytes | memoryview) -> None:
    """Write a message."""
    file.write(len(data).to_bytes(HEAD, "little"))
    file.write(data)
    file.flush()


def receive(file: IO[bytes]) -> bytes:
    """Return the next message; raise `EOFError` if there is none, or it breaks off."""
    return _exactly(file, int.from_bytes(_exactly(file, HEAD), "little"))


def _exactly(file: IO[bytes], size: int) -> bytes:
    found = file.read(size)
    if len(found) < size:
        raise EOFError
    return found


def send_job(file: IO[bytes], head: bytes, memory: Memory) -> None:
    """Write a job that was packed without its memory, and that: large parts are written as they lie."""
    send(file, head)
    for part in memory.parts:
        send(file, part.data)


def receive_job(file: IO[bytes]) -> Job:
    """Return the job that comes next."""
    job: Job = unpacked(receive(file))
    job.memory.parts += [np.frombuffer(receive(file), np.uint8) for _ in job.memory.lead]
    return job


def head_of(job: Job) -> bytes:
    """Return a job as bytes, but for its memory; raise `Unsendable` if it has no such form."""
    return packed(job._replace(memory=Memory(job.memory.places, [], job.memory.lead)))
