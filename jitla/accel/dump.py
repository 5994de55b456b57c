"""A program with its data in one file, which any simulator of the instruction set can replay.

Knows: the entries of the file. Must not know: who reads it.
Receives a program and an image of DRAM; writes, and reads, `.npz`.

Entries: `name` and `config` (JSON, the standard keys), `instructions` (uint64, two words a row, the low one
first), `uops` (uint32), `uop_address`, `dram` (bytes before the run), `expected` (bytes after it), `regions`
(JSON).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jitla.accel.functional import run
from jitla.accel.program import Image, Program, Region, from_words
from jitla.accel.spec import loads


class Dump(NamedTuple):
    """A program, DRAM before it, and DRAM as it must be after it."""

    program: Program
    image: Image
    expected: Image


def save_dump(path: str | Path, program: Program, image: Image) -> Path:
    """Write `program`, `image` and what it becomes to the file `path`; return where it is."""
    place = Path(path)
    regions = [{"name": r.name, "address": r.address, "shape": list(r.shape), "dtype": r.dtype.str,
                "role": r.role} for r in program.regions]
    with place.open("wb") as file:
        np.savez_compressed(
            file, name=np.array(program.spec.name), config=np.array(program.spec.dumps()),
            instructions=program.words, uops=program.uops, uop_address=np.array(program.uop_address),
            dram=image, expected=run(program, image).image, regions=np.array(json.dumps(regions)))
    return place


def load_dump(path: str | Path) -> Dump:
    """Return what `save_dump` wrote to `path`."""
    with np.load(path, allow_pickle=False) as entries:
        spec = loads(str(entries["config"]), str(entries["name"]))
        regions = [Region(r["name"], r["address"], tuple(r["shape"]), np.dtype(r["dtype"]), r["role"])
                   for r in json.loads(str(entries["regions"]))]
        program = from_words(spec, entries["instructions"], entries["uops"], int(entries["uop_address"]),
                             regions)
        return Dump(program, entries["dram"], entries["expected"])
