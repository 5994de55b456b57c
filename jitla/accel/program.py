"""A program for the device: its stream, its micro-ops, and the map of DRAM.

Knows: where in DRAM what lies. Must not know: how programs are made or run.
Receives instructions, micro-ops and regions; returns the image of DRAM a run starts from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jitla.accel.encoding import UopWords, Words, decode, encode
from jitla.accel.isa import Instruction
from jitla.accel.spec import PAGE, Spec
from jitla.classes import cached_property, dataclass
from jitla.errors import DeviceError

Image = NDArray[np.uint8]  # all of DRAM that a program uses, by byte address; the first page is never used


@dataclass(frozen=True)
class Region:
    """A named array in DRAM: `role` is "input", "constant", "output" or "scratch"."""

    name: str
    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    role: str

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def end(self) -> int:
        """The address behind the last byte."""
        return self.address + self.nbytes


class Layout:
    """Regions one behind the other, each from a page of its own."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.end = PAGE

    def add(self, name: str, shape: tuple[int, ...], dtype: Any, role: str) -> Region:
        """Return the next region."""
        region = Region(name, self.end, shape, np.dtype(dtype), role)
        self.end += -(-max(region.nbytes, 1) // PAGE) * PAGE
        self.regions.append(region)
        return region


@dataclass(frozen=True, eq=False)
class Program:
    """A stream with what it reads: the table of micro-ops lies at `uop_address` in DRAM."""

    spec: Spec
    instructions: tuple[Instruction, ...]
    uops: UopWords = field(default_factory=lambda: np.zeros(0, np.uint32))
    uop_address: int = PAGE
    regions: tuple[Region, ...] = ()

    @property
    def dram_bytes(self) -> int:
        """Bytes of DRAM, up to the last that has a name."""
        return max([self.uop_address + self.uops.nbytes, *(region.end for region in self.regions)])

    @cached_property
    def words(self) -> Words:
        """The stream as the device reads it."""
        return encode(self.spec, self.instructions)

    def region(self, name: str) -> Region:
        """Return the region called `name`."""
        for region in self.regions:
            if region.name == name:
                return region
        raise DeviceError(f"no region is called {name!r}: there are {[r.name for r in self.regions]}")

    def image(self, arrays: Mapping[str, ArrayLike] | None = None) -> Image:
        """Return DRAM with the micro-ops and `arrays`, by name of their region, in it; zeros elsewhere."""
        image = np.zeros(self.dram_bytes, np.uint8)
        image[self.uop_address:self.uop_address + self.uops.nbytes] = self.uops.view(np.uint8)
        for name, array in (arrays or {}).items():
            self.view(image, name)[...] = array
        return image

    def view(self, image: Image, name: str) -> NDArray[Any]:
        """Return the region called `name` in `image`, as an array."""
        region = self.region(name)
        return image[region.address:region.end].view(region.dtype).reshape(region.shape)


def from_words(spec: Spec, words: Words, uops: UopWords, uop_address: int = PAGE,
               regions: Iterable[Region] = ()) -> Program:
    """Return the program whose stream is `words`."""
    return Program(spec, decode(spec, words), np.asarray(uops, np.uint32), uop_address, tuple(regions))
