"""What this machine can do: bandwidth of reading and copying, arithmetic peak, one and all threads.

Inner parts used: `Jit` and `load_native` of jitla.codegen, `set_threads` and `empty` of
jitla.runtime; no kernel of the compiler takes part, so that its kernels can be held against this.
"""

from __future__ import annotations

import json
import platform
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import Template

import numpy as np

from jitla import runtime
from jitla.codegen import Jit, Library, load_native

UNIT = 4096  # elements of one unit: 32 KB
BYTES = 256 << 20
TURNS = 20_000  # loop turns of one unit of arithmetic

HEAD = """
define void @$name(ptr %block, i64 %begin, i64 %end) nounwind {
entry:
  %pa = getelementptr i64, ptr %block, i64 8
  %a = load ptr, ptr %pa
  %pb = getelementptr i64, ptr %block, i64 9
  %b = load ptr, ptr %pb
  br label %unit
unit:
  %u = phi i64 [ %begin, %entry ], [ %u1, %done ]
  %first = mul i64 %u, $unit
  br label %loop
loop:
  %i = phi i64 [ 0, %unit ], [ %i1, %loop ]
"""

TAIL = """
  %i1 = add i64 %i, $step
  %more = icmp slt i64 %i1, $count
  br i1 %more, label %loop, label %done
done:
  $store
  %u1 = add i64 %u, 1
  %again = icmp slt i64 %u1, %end
  br i1 %again, label %unit, label %out
out:
  ret void
}
"""


def body(name: str, lines: list[str], count: int, step: int, store: list[str]) -> str:
    """A kernel: for each unit, `lines` for i in range(0, count, step), then `store`."""
    text = Template(HEAD + "\n".join(f"  {line}" for line in lines) + TAIL)
    return text.substitute(name=name, unit=UNIT, count=count, step=step, store="\n  ".join(store))


def folded(n: int, vector: str) -> list[str]:
    """Store the sum of vectors %s0' .. at b[u], so that the work is not dead."""
    adds = ["%t0 = fadd " + vector + " %n0, %n1"]
    adds += [f"%t{k} = fadd {vector} %t{k - 1}, %n{k + 1}" for k in range(1, n - 1)]
    return [*adds, f"%x = extractelement {vector} %t{n - 2}, i32 0",
            "%pu = getelementptr double, ptr %b, i64 %u", "store double %x, ptr %pu, align 8"]


def reading(w: int, ahead: int) -> str:
    """Sum with eight accumulators and software prefetch."""
    v, n = f"<{w} x double>", 8
    lines = [f"%s{k} = phi {v} [ zeroinitializer, %unit ], [ %n{k}, %loop ]" for k in range(n)]
    lines += ["%at = add i64 %first, %i"]
    for k in range(n):
        lines += [f"%j{k} = add i64 %at, {k * w}",
                  f"%p{k} = getelementptr double, ptr %a, i64 %j{k}"]
        if ahead and k * w * 8 % 64 == 0:
            lines += [f"%f{k} = getelementptr i8, ptr %p{k}, i64 {ahead}",
                      f"call void @llvm.prefetch.p0(ptr %f{k}, i32 0, i32 3, i32 1)"]
        lines += [f"%v{k} = load {v}, ptr %p{k}, align 8", f"%n{k} = fadd {v} %s{k}, %v{k}"]
    return body(f"read{ahead}", lines, UNIT, n * w, folded(n, v))


def copying(w: int, hint: str) -> str:
    """Copy, with stores that pass the cache by if `hint` says so."""
    v, lines = f"<{w} x double>", ["%at = add i64 %first, %i"]
    for k in range(4):
        lines += [f"%j{k} = add i64 %at, {k * w}",
                  f"%p{k} = getelementptr double, ptr %a, i64 %j{k}",
                  f"%q{k} = getelementptr double, ptr %b, i64 %j{k}",
                  f"%v{k} = load {v}, ptr %p{k}, align 8",
                  f"store {v} %v{k}, ptr %q{k}, align {8 * w}{hint}"]
    return body("stream" if hint else "copy", lines, UNIT, 4 * w, [])


def arithmetic(w: int, fused: bool) -> str:
    """Twelve independent chains of multiply-add."""
    v, n = f"<{w} x double>", 12
    c = "splat (double 0x3FEFFFFFFFFFFFFF)"
    lines = [f"%s{k} = phi {v} [ splat (double {k}.5), %unit ], [ %n{k}, %loop ]" for k in range(n)]
    for k in range(n):
        if fused:
            lines += [f"%n{k} = call {v} @llvm.fma.v{w}f64({v} %s{k}, {v} {c}, {v} {c})"]
        else:
            lines += [f"%m{k} = fmul {v} %s{k}, {c}", f"%n{k} = fadd {v} %m{k}, {c}"]
    return body("arithmetic", lines, TURNS, 1, folded(n, v))


@dataclass
class Bench:
    """The loaded kernels, and arrays larger than the caches."""

    launch: Callable[..., None]
    library: Library
    width: int
    source: np.ndarray
    target: np.ndarray

    def seconds(self, kernel: str, units: int, threads: int, repeats: int = 3) -> float:
        """Least time of `repeats` runs over `units`."""
        runtime.set_threads(threads)
        grain = units if threads == 1 else max(1, units // (8 * threads))
        entry = self.library.addresses[kernel]
        block = struct.pack("12Q", entry, 12, units, grain, 0, 0, 0, 2, 0, 0, 0, 0)
        best = float("inf")
        for _ in range(repeats):
            before = time.perf_counter()
            self.launch(block, self.source, self.target)
            best = min(best, time.perf_counter() - before)
        return best


def prepare() -> Bench:
    """Compile the kernels for this processor."""
    jit = Jit()
    target = jit.target
    width = target.vector_bytes // 8
    prefix = f'target triple = "{target.triple}"\n'
    names = ("read0", "read4096", "read8192", "copy", "stream", "arithmetic")
    text = [reading(width, ahead) for ahead in (0, 4096, 8192)]
    text += [copying(width, hint) for hint in ("", ", !nontemporal !0")]
    text += [arithmetic(width, "fma" in target.features),
             f"declare <{width} x double> @llvm.fma.v{width}f64(<{width} x double>, "
             f"<{width} x double>, <{width} x double>)\n"
             "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n!0 = !{i32 1}\n"]
    launch = load_native(jit.load, prefix)
    library = jit.load(prefix + "".join(text), names)
    arrays = [runtime.empty((BYTES // 8,), np.dtype("f8")) for _ in range(2)]
    for array in arrays:
        array[:] = 1.0
    return Bench(launch, library, width, arrays[0], arrays[1])


def measure(bench: Bench, rounds: int = 5) -> dict[str, dict[str, float]]:
    """GB/s and GFLOP/s by row, for one and for all threads: the best of several rounds."""
    units, every = BYTES // 8 // UNIT, runtime.threads()
    flops = 24.0 * bench.width * TURNS
    plan = {
        "read, GB/s": ("read0", BYTES, units),
        "read, prefetch 4 KB, GB/s": ("read4096", BYTES, units),
        "read, prefetch 8 KB, GB/s": ("read8192", BYTES, units),
        "copy, GB/s read + written": ("copy", 2 * BYTES, units),
        "copy past the cache, GB/s read + written": ("stream", 2 * BYTES, units),
        "multiply-add float64, GFLOP/s": ("arithmetic", flops * 16 * every, 16 * every),
    }
    rows: dict[str, dict[str, float]] = {name: {"one": 0.0, "all": 0.0} for name in plan}
    for _ in range(rounds):  # neighbours on the machine come and go
        for name, (kernel, amount, n) in plan.items():
            for key, threads in (("one", 1), ("all", every)):
                rate = amount / bench.seconds(kernel, n, threads) / 1e9
                rows[name][key] = max(rows[name][key], rate)
    runtime.set_threads(None)
    return rows


def glance(bench: Bench) -> tuple[float, float, float]:
    """Bytes read, and copied, and multiply-adds of float64 per second, on all threads, by one run each."""
    units, every = BYTES // 8 // UNIT, runtime.threads()
    pieces = 64 * every
    reads, copies, computes = (
        bench.seconds(kernel, n, every, repeats=1)
        for kernel, n in (("read0", units), ("stream", units), ("arithmetic", pieces)))
    runtime.set_threads(None)
    return BYTES / reads, 2 * BYTES / copies, 12.0 * bench.width * TURNS * pieces / computes


def numpy_rows(bench: Bench) -> dict[str, dict[str, float]]:
    """The same of NumPy, on its one thread."""
    def gbs(amount: float, run: Callable[[], object]) -> dict[str, float]:
        best = float("inf")
        for _ in range(5):
            before = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - before)
        return {"one": amount / best / 1e9}

    return {
        "numpy sum, GB/s": gbs(BYTES, bench.source.sum),
        "numpy copyto, GB/s read + written": gbs(
            2 * BYTES, lambda: np.copyto(bench.target, bench.source)),
    }


def main(path: str | None = None) -> None:
    """Measure, print, and write JSON to `path`."""
    bench = prepare()
    threads = runtime.threads()
    rows = measure(bench) | numpy_rows(bench)
    print(f"{platform.processor() or platform.machine()}, {threads} threads, "
          f"vectors of {bench.width} float64")
    print(f"{'':44}{'one':>9}{'all':>9}")
    for name, values in rows.items():
        cells = "".join(f"{values[key]:9.1f}" if key in values else "" for key in ("one", "all"))
        print(f"{name:44}{cells}")
    if path:
        record = {"threads": threads, "vector": bench.width, "rows": rows}
        Path(path).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
