"""NPBench (github.com/spcl/npbench): its NumPy versions, unchanged; BENCH_NPBENCH names a checkout.

Ziogas et al., NPBench: A Benchmarking Suite for High-Performance NumPy, ICS 2021. The preset is S, the
smallest. All functions of a module are decorated.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from bench.loop_programs.program import Call, Mode, Program, decorate_in, functions_of, load_file
from bench.loop_programs.suites.folders import folder_of

PRESET = "S"


def _arguments(folder: Path, info: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of a preset, made as `npbench.infrastructure.Benchmark.get_data` makes them."""
    data = dict(info["parameters"][PRESET])
    initial = info.get("init")
    if initial:
        module = load_file(folder / f"{info['module_name']}.py", f"{info['module_name']}_data", folder)
        made = getattr(module, initial["func_name"])(*(data[name] for name in initial["input_args"]))
        names = initial["output_args"]
        data.update(zip(names, made if len(names) > 1 else (made,), strict=True))
    return tuple(data[name] for name in info["input_args"])


def _load(root: Path, info: dict[str, Any], mode: Mode) -> Call:
    folder = root / "npbench" / "benchmarks" / info["relative_path"]
    stem = f"{info['module_name']}_numpy"
    module = load_file(folder / f"{stem}.py", f"{mode.name}_{stem}", folder)
    arguments = _arguments(folder, info)
    return Call(decorate_in(module, info["func_name"], functions_of(module), mode), arguments)


def programs() -> list[Program]:
    """Return the programs of the checkout; none without one."""
    root = folder_of("BENCH_NPBENCH")
    if root is None:
        return []
    infos = [json.loads(path.read_text(encoding="utf-8"))["benchmark"]
             for path in sorted((root / "bench_info").glob("*.json"))]
    return [Program("npbench", info.get("domain") or "", info["short_name"], partial(_load, root, info))
            for info in infos]
