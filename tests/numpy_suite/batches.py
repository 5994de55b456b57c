"""What one worker process runs: some test files, or one part of a large one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

BYTES = 120_000


class Batch(NamedTuple):
    """Files that one process runs, and which part I/N of their items."""

    files: tuple[str, ...]
    part: str
    weight: int


def batches(folder: Path, files: Iterable[Path]) -> list[Batch]:
    """Split large files into parts and put small ones together."""
    made: list[Batch] = []
    small: list[str] = []
    room = BYTES
    for path in files:
        size = (folder / path).stat().st_size
        if size > BYTES:
            count = -(-size // BYTES)
            made += [Batch((str(path),), f"{i}/{count}", size // count) for i in range(count)]
            continue
        if size > room:
            made.append(Batch(tuple(small), "0/1", BYTES - room))
            small, room = [], BYTES
        small.append(str(path))
        room -= size
    return [*made, Batch(tuple(small), "0/1", BYTES - room)]


def shard(found: list[Batch], index: int, count: int) -> list[Batch]:
    """Return the batches of shard `index` of `count` (from 1): about equal work, always the same."""
    loads = [0] * count
    mine: list[Batch] = []
    for batch in sorted(found, key=lambda b: (-b.weight, b)):
        lightest = loads.index(min(loads))
        loads[lightest] += batch.weight
        if lightest == index - 1:
            mine.append(batch)
    return mine
