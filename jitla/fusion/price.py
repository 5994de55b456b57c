"""Prices of kernels and calls (provisional)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jitla.fusion.layout import Layout
from jitla.hops import Hop, Kind, Machine, flops


@dataclass(frozen=True, slots=True)
class Terms:
    read: float
    write: float
    work: float
    launch: float

    @property
    def seconds(self) -> float:
        return self.write + max(self.read, self.work) + self.launch


class Prices:
    def __init__(self, machine: Machine, layouts: Mapping[Hop, Layout]) -> None:
        self.machine = machine
        self.layouts = layouts

    def work(self, hop): return flops(hop) / self.machine.flops
    def reads(self, hop): return hop.meta.nbytes / self.machine.read_bw
    def writes(self, hop): return hop.meta.nbytes / self.machine.write_bw
    def passes(self, hop): return hop.meta.nbytes / (4 * self.machine.read_bw)
    def kernel(self, read, write, work): return Terms(read, write, work, 2e-6)
    def row_kernel(self, read, write, work, inner): return Terms(read, write, work + inner, 4e-6)

    def call(self, hop):
        m = self.machine
        if hop.op.kind is Kind.LEAF or hop.op.name in ("transpose", "reshape", "expand_dims", "getitem"):
            return Terms(0, 0, 0, 1e-7)
        read = sum(i.meta.nbytes for i in set(hop.inputs)) / m.read_bw
        return Terms(read, hop.meta.nbytes / m.write_bw, flops(hop) / m.flops, 1e-6)
