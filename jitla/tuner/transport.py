"""Serialisation of a kernel for another process: its operators, sizes and operand memory."""

from __future__ import annotations

import ctypes
import io
import pickle
from collections.abc import Mapping, Sequence
from math import prod
from typing import IO, Any, NamedTuple

import numpy as np

from jitla.classes import dataclass
from jitla.hops import Hop, HopRows, NotSerialisable, hops_from_rows

__all__ = [
    "Job", "OperandMemory", "Unsendable", "pack", "packed_header", "receive", "receive_job", "send",
    "send_job",
    "unpack",
]

PAGE_BYTES = 4096
MAX_COPIED_BYTES = 2 << 30  # of operands
LENGTH_BYTES = 8  # of the length of a message

Array = np.ndarray[Any, Any]


class Unsendable(Exception):
    """A kernel or its operands cannot be sent to another process."""


# ---------------------------------------------------------------------- hops


class _HopPickler(pickle.Pickler):
    """Pickles hops as numbers of the rows of `hops`, in topological order.

    Recursive pickling would overflow the stack on deep DAGs.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.hops = HopRows(())

    def persistent_id(self, thing: Any) -> int | None:
        """Return the number of a hop; None to pickle other objects themselves."""
        return self.hops.number_of(thing) if isinstance(thing, Hop) else None


class _HopUnpickler(pickle.Unpickler):
    """Restores what `_HopPickler` wrote from the rows of its hops."""

    def __init__(self, file: io.BytesIO, rows: Sequence[Any]) -> None:
        super().__init__(file)
        self.hops = hops_from_rows(rows, ())

    def persistent_load(self, number: int) -> Hop:
        """Return the hop of a number."""
        return self.hops[number]


def pack(thing: Any) -> bytes:
    """Serialise `thing` and all hops in it; raise `Unsendable` if it cannot be pickled."""
    file = io.BytesIO()
    writer = _HopPickler(file)
    try:
        writer.dump(thing)
        return pickle.dumps((writer.hops.rows, file.getvalue()), protocol=5)
    except (NotSerialisable, pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise Unsendable(f"it cannot be pickled: {error}") from error


def unpack(data: bytes) -> Any:
    """Return the object that `pack` serialised."""
    rows, body = pickle.loads(data)
    return _HopUnpickler(io.BytesIO(body), rows).load()


# ---------------------------------------------------------------------- memory


class ArrayPlacement(NamedTuple):
    """The placement of an array: the number of a memory part, the byte offset in it, and the layout."""

    part: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype


@dataclass(slots=True)
class OperandMemory:
    """The operands of a kernel with a copy of their memory; overlapping arrays share one part.

    Contents of the results, the last operands, are not copied. `page_offsets` are the offsets of parts
    within a page: alignment affects timings.
    """

    placements: list[Any]
    parts: list[Array]
    page_offsets: list[int]

    @classmethod
    def copy_of(cls, operands: Sequence[Any], outputs: int) -> OperandMemory:
        """Copy `operands`; raise `Unsendable` if they are too large, or if results overlap inputs."""
        bounds = [_bounds(x) for x in operands if isinstance(x, np.ndarray)]
        unsupported = [x for x in operands if not isinstance(x, (np.ndarray, np.generic, int, float, complex))
                       or isinstance(x, np.ndarray) and x.dtype.hasobject]
        if unsupported:
            raise Unsendable(f"an operand is an object of type {type(unsupported[0]).__name__}")
        results = [_bounds(x) for x in operands[len(operands) - outputs:]]
        inputs = bounds[:len(bounds) - outputs]
        if any(a < d and c < b for a, b in results for c, d in inputs):
            raise Unsendable("a result overlaps an operand")
        spans = _merge_spans(bounds)
        if sum(b - a for a, b in spans) > MAX_COPIED_BYTES:
            raise Unsendable("the operands are too large to copy")
        is_output = [any(a <= r < b for r, _ in results) for a, b in spans]
        parts = [np.zeros(b - a, np.uint8) if w else _copy(a, b - a)
                 for (a, b), w in zip(spans, is_output, strict=True)]
        return cls([_placement_of(x, spans) for x in operands], parts, [a % PAGE_BYTES for a, _ in spans])

    def operands(self) -> tuple[Any, ...]:
        """Return operands with the same values, layout, overlap and alignment in new memory."""
        parts = []
        for part, page_offset in zip(self.parts, self.page_offsets, strict=True):
            buffer = np.empty(part.size + PAGE_BYTES, np.uint8)
            start = (page_offset - buffer.ctypes.data) % PAGE_BYTES
            parts.append(buffer[start:start + part.size])
            parts[-1][:] = part
        return tuple(
            np.ndarray(p.shape, p.dtype, parts[p.part].data, p.offset, p.strides)
            if isinstance(p, ArrayPlacement)
            else p for p in self.placements)


def _bounds(x: Array) -> tuple[int, int]:
    """Return the first address of an array and the one past its end; an empty array has one byte."""
    if not x.size:
        return x.ctypes.data, x.ctypes.data + 1
    steps = [s * (n - 1) for s, n in zip(x.strides, x.shape, strict=True)]
    first = x.ctypes.data + sum(s for s in steps if s < 0)
    return first, x.ctypes.data + sum(s for s in steps if s > 0) + x.itemsize


def _merge_spans(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge overlapping spans of memory."""
    merged: list[tuple[int, int]] = []
    for a, b in sorted(spans):
        if merged and a < merged[-1][1]:
            merged[-1] = merged[-1][0], max(b, merged[-1][1])
        else:
            merged.append((a, b))
    return merged


def _copy(start: int, size: int) -> Array:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start)).copy()


def _placement_of(x: Any, spans: Sequence[tuple[int, int]]) -> Any:
    if not isinstance(x, np.ndarray):
        return x
    address = x.ctypes.data
    part = next(k for k, (a, b) in enumerate(spans) if a <= _bounds(x)[0] < b)
    strides = x.strides if prod(x.shape) else (0,) * x.ndim
    return ArrayPlacement(part, address - spans[part][0], x.shape, strides, x.dtype)


# ---------------------------------------------------------------------- messages


class Job(NamedTuple):
    """A kernel for another process: its serialisable binding, its operands, and the options."""

    parcel: Any
    memory: OperandMemory
    outputs: int
    options: Mapping[str, Any]


def send(file: IO[bytes], data: bytes | memoryview) -> None:
    """Write a message."""
    file.write(len(data).to_bytes(LENGTH_BYTES, "little"))
    file.write(data)
    file.flush()


def receive(file: IO[bytes]) -> bytes:
    """Return the next message; raise `EOFError` if it is missing or incomplete."""
    return _read_exactly(file, int.from_bytes(_read_exactly(file, LENGTH_BYTES), "little"))


def _read_exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data


def send_job(file: IO[bytes], head: bytes, memory: OperandMemory) -> None:
    """Write a job: its packed header, then the memory parts without another copy."""
    send(file, head)
    for part in memory.parts:
        send(file, part.data)


def receive_job(file: IO[bytes]) -> Job:
    """Read the next job."""
    job: Job = unpack(receive(file))
    job.memory.parts += [np.frombuffer(receive(file), np.uint8) for _ in job.memory.page_offsets]
    return job


def packed_header(job: Job) -> bytes:
    """Return a job without its memory as bytes; raise `Unsendable` if it cannot be pickled."""
    return pack(job._replace(memory=OperandMemory(job.memory.placements, [], job.memory.page_offsets)))
