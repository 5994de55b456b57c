"""PolyBench/Python (github.com/UDC-GAC/polybench-python): BENCH_POLYBENCH names a checkout.

Abella-González et al., PolyBench/Python: Benchmarking Python Environments with Polyhedral Optimizations,
CC 2021.
The method that is the kernel of a class is decorated. `lu` is the version for NumPy with data set SMALL;
`lu.flat` and `lu.nested` are the versions for flat and nested lists with data set MINI, given arrays.
"""

from __future__ import annotations

import importlib
import sys
from functools import partial
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any
from unittest.mock import MagicMock

import numpy as np

from bench.loop_programs.program import Call, Mode, Program
from bench.loop_programs.suites.folders import folder_of

VERSIONS = {"": ("NUMPY", "SMALL"), ".flat": ("LIST_FLATTENED", "MINI"), ".nested": ("LIST", "MINI")}
MISSING = ("pypapi", "inlineasm")  # read hardware counters, which are not used here


def _module(root: Path, spec_name: str, category: str) -> ModuleType:
    for name in MISSING:
        sys.modules.setdefault(name, MagicMock())
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    stem = spec_name.replace("-", "_")
    stem = f"_{stem}" if stem[0].isdigit() else stem
    path = f"benchmarks.{category.replace('-', '_').replace('/', '.')}.{stem}.{stem}"
    sys.modules.pop(path, None)  # a second copy, so that methods decorated in the first are plain
    return importlib.import_module(path)


def _as_array(value: Any) -> Any:
    return np.array(value) if isinstance(value, list) else value


def _load(root: Path, spec_name: str, category: str, version: str, mode: Mode) -> Call:
    module = _module(root, spec_name, category)
    classes: Any = sys.modules["benchmarks.polybench_classes"]
    implementation, size = VERSIONS[version]
    options = classes.PolyBenchOptions()
    options.POLYBENCH_ARRAY_IMPLEMENTATION = classes.ArrayImplementation[implementation]
    options.LOAD_ELIMINATION = False  # the kernels that read elements where they need them
    options.POLYBENCH_DATASET_SIZE = classes.DataSetSize[size]
    specs = classes.PolyBenchSpecFile(str(root / "polybench.spec")).specs
    spec = next(s for s in specs if s.Name == spec_name)
    base: Any = sys.modules["benchmarks.polybench"]
    chosen: Any = next(c for c in vars(module).values()
                       if isinstance(c, type) and c.__bases__ == (base.PolyBench,))
    instance = chosen(options, spec)
    instance.__init__(options, spec)  # the instance is of a subclass that `__new__` chooses
    captured: list[Any] = []
    instance.time_kernel = lambda *arguments: captured.extend(map(_as_array, arguments))
    instance.run_benchmark()
    kernel = instance.kernel
    if mode.decorate is not None:
        kernel = MethodType(mode.decorate(kernel.__func__), instance)
    return Call(kernel, tuple(captured))


def programs() -> list[Program]:
    """Return the programs of the checkout; none without one."""
    root = folder_of("BENCH_POLYBENCH")
    if root is None:
        return []
    lines = (root / "polybench.spec").read_text(encoding="utf-8").splitlines()[1:]
    found = [line.split("\t")[:2] for line in lines if line.strip()]
    return [Program("polybench", category, name + version, partial(_load, root, name, category, version))
            for version in VERSIONS for name, category in found]
