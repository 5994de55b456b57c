"""The specification of an accelerator, from which all widths, depths and limits follow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from enum import IntEnum
from math import prod
from typing import Any

import numpy as np

from jitla.classes import cached_property, dataclass
from jitla.errors import ConfigError

PAGE = 4096  # bytes; allocations are page-aligned, and the first page is unused
MAX_TRANSFER_BYTES = 1 << 25  # of the instruction stream or the micro-op table
ADDRESS_BITS = 32
STANDARD_KEYS = (
    "TARGET", "HW_VER", "LOG_INP_WIDTH", "LOG_WGT_WIDTH", "LOG_ACC_WIDTH", "LOG_BATCH", "LOG_BLOCK",
    "LOG_UOP_BUFF_SIZE", "LOG_INP_BUFF_SIZE", "LOG_WGT_BUFF_SIZE", "LOG_ACC_BUFF_SIZE")
# A key beyond the standard ones, omitted for "strict": the subset that all implementations agree on.
# "extended" adds products, loads of bytes into the accumulator and shifts by tensors; "float" is a different
# machine.
DIALECT = "DIALECT"
DIALECTS = ("strict", "extended", "float")


class Memory(IntEnum):
    """The memory ids of loads and stores; ACC8 is the accumulator, loaded from bytes."""

    UOP = 0
    WGT = 1
    INP = 2
    ACC = 3
    OUT = 4
    ACC8 = 5


@dataclass(frozen=True)
class Board:
    """The board: clock and memory bus."""

    clock_mhz: int
    bus_bits: int
    burst_beats: int  # a burst does not cross a multiple of this


PYNQ = Board(100, 64, 256)
# Clocks and buses of the boards with upstream VTA configurations; DE10 has AXI bursts of 16 beats.
BOARDS: Mapping[str, Board] = {
    "pynq": PYNQ, "sim": PYNQ, "tsim": PYNQ,
    "de10nano": Board(100, 64, 16),
    "ultra96": Board(333, 128, 256), "zcu104": Board(333, 128, 256),
}


@dataclass(frozen=True)
class Element:
    """The element of an on-chip memory, a small tensor, and the number of elements."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    depth: int

    @cached_property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize * prod(self.shape)

    @property
    def index_bits(self) -> int:
        """The number of bits of an index."""
        return (self.depth - 1).bit_length()


@dataclass(frozen=True)
class AccelSpec:
    """An accelerator configuration: base-two logarithms of widths, blocks and buffer sizes."""

    name: str
    target: str = "sim"
    hw_ver: str = "0.0.2"
    log_inp_width: int = 3
    log_wgt_width: int = 3
    log_acc_width: int = 5
    log_batch: int = 0
    log_block: int = 4
    log_uop_buff_size: int = 15
    log_inp_buff_size: int = 15
    log_wgt_buff_size: int = 18
    log_acc_buff_size: int = 17
    dialect: str = "strict"

    def __post_init__(self) -> None:
        """Raise `ConfigError` for inconsistent values; instruction fields are checked separately."""
        self._require(self.target in BOARDS, f"TARGET is one of {sorted(BOARDS)}")
        self._require(self.dialect in DIALECTS, f"{DIALECT} is one of {DIALECTS}")
        widths = (self.log_inp_width, self.log_wgt_width, self.log_acc_width)
        self._require(all(3 <= w <= 5 for w in widths), "scalars have 8, 16 or 32 bits")
        self._require(self.log_acc_width >= max(widths), "accumulators are at least as wide as factors")
        self._require(not self.is_float or set(widths) == {5}, "floats have 32 bits")
        self._require(0 <= self.log_batch <= 6 and 0 <= self.log_block <= 8, "blocks are 1 to 256")
        for memory in Memory:
            self._require(self.log_bytes(memory) >= 0 and self.element(memory).depth >= 2,
                          f"{memory.name} has at least two elements")

    def _require(self, condition: bool, requirement: str) -> None:
        if not condition:
            raise ConfigError(f"accelerator {self.name!r}: {requirement}")

    @property
    def batch(self) -> int:
        """Rows of an activation element."""
        return 1 << self.log_batch

    @property
    def block(self) -> int:
        """Input and output lanes of the array."""
        return 1 << self.log_block

    @property
    def board(self) -> Board:
        """The board of the target."""
        return BOARDS[self.target]

    @property
    def is_float(self) -> bool:
        """Whether it is the float machine, whose programs are incompatible with others."""
        return self.dialect == "float"

    @property
    def macs_per_step(self) -> int:
        """Multiply-accumulates of one micro-op iteration of GEMM."""
        return self.batch * self.block * self.block

    @property
    def tag(self) -> str:
        """The configuration as one word, in upstream VTA's format."""
        widths = f"i{1 << self.log_inp_width}w{1 << self.log_wgt_width}a{1 << self.log_acc_width}"
        sizes = (self.log_uop_buff_size, self.log_inp_buff_size, self.log_wgt_buff_size,
                 self.log_acc_buff_size)
        return "_".join([f"{self.batch}x{self.block}", widths, *map(str, sizes)])

    def log_bytes(self, memory: Memory) -> int:
        """Return the base-two logarithm of the bytes of `memory`; OUT's follows from ACC's."""
        out = self.log_acc_buff_size + self.log_inp_width - self.log_acc_width
        return {Memory.UOP: self.log_uop_buff_size, Memory.WGT: self.log_wgt_buff_size,
                Memory.INP: self.log_inp_buff_size, Memory.ACC: self.log_acc_buff_size,
                Memory.OUT: out, Memory.ACC8: out}[memory]

    @cached_property
    def elements(self) -> tuple[Element, ...]:
        """The element of each memory by id, in its DRAM layout."""
        return tuple(self._element(memory) for memory in Memory)

    def element(self, memory: Memory) -> Element:
        """Return the element of `memory`."""
        return self.elements[memory]

    def _element(self, memory: Memory) -> Element:
        dtype = self._scalar(memory)
        activation = (self.batch, self.block)
        shapes = {Memory.UOP: (1,), Memory.WGT: (self.block, self.block)}
        shape = shapes.get(memory, activation)
        return Element(shape, dtype, (1 << self.log_bytes(memory)) // (dtype.itemsize * prod(shape)))

    def _scalar(self, memory: Memory) -> np.dtype[Any]:
        if memory is Memory.UOP:
            return np.dtype(np.uint32)
        if self.is_float:
            return np.dtype(np.float32)
        logs = {Memory.WGT: self.log_wgt_width, Memory.ACC: self.log_acc_width}
        return np.dtype(f"i{(1 << logs.get(memory, self.log_inp_width)) // 8}")

    def record(self) -> dict[str, Any]:
        """Return the configuration with the keys of configuration files."""
        values = {key.upper(): value for key, value in asdict(self).items()}
        record = {key: values[key] for key in STANDARD_KEYS}
        return record | ({DIALECT: self.dialect} if self.dialect != "strict" else {})

    def dumps(self) -> str:
        """Return the configuration as JSON."""
        return json.dumps(self.record(), indent=2)


def from_record(record: Mapping[str, Any], name: str = "custom") -> AccelSpec:
    """Return the specification of a configuration; derived keys are allowed if consistent."""
    derived = {"LOG_BLOCK_IN": "LOG_BLOCK", "LOG_BLOCK_OUT": "LOG_BLOCK", "LOG_OUT_WIDTH": "LOG_INP_WIDTH"}
    known = {field.name.upper() for field in fields(AccelSpec)} - {"NAME"}
    unknown = set(record) - known - set(derived) - {"LOG_OUT_BUFF_SIZE"}
    if unknown or set(STANDARD_KEYS) - set(record):
        missing = sorted(set(STANDARD_KEYS) - set(record))
        raise ConfigError(f"accelerator {name!r}: unknown keys {sorted(unknown)}, missing keys {missing}")
    spec = AccelSpec(name, **{key.lower(): value for key, value in record.items() if key in known})
    for key, source in derived.items():
        if record.get(key, record[source]) != record[source]:
            raise ConfigError(f"accelerator {name!r}: {key} follows from {source}")
    if record.get("LOG_OUT_BUFF_SIZE", spec.log_bytes(Memory.OUT)) != spec.log_bytes(Memory.OUT):
        raise ConfigError(f"accelerator {name!r}: LOG_OUT_BUFF_SIZE follows from the accumulator's")
    return spec


def loads(text: str, name: str = "custom") -> AccelSpec:
    """Return the specification of a configuration in JSON."""
    try:
        record = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"accelerator {name!r}: {error}") from error
    if not isinstance(record, dict):
        raise ConfigError(f"accelerator {name!r}: a JSON object of keys and numbers is needed")
    return from_record(record, name)


PRESETS: Mapping[str, AccelSpec] = {spec.name: spec for spec in (
    AccelSpec("vta-pynq", "pynq"),
    AccelSpec("vta-ultra96", "ultra96"),
    # not a VTA machine: floats with the same control structure and memory bytes
    AccelSpec("vta-f32", "sim", log_inp_width=5, log_wgt_width=5, dialect="float"),
    AccelSpec("vta-extended", "pynq", dialect="extended"),
)}


def preset(name: str) -> AccelSpec:
    """Return the preset specification called `name`."""
    try:
        return PRESETS[name]
    except KeyError:
        raise ConfigError(f"unknown accelerator {name!r}; the presets are {sorted(PRESETS)}") from None
