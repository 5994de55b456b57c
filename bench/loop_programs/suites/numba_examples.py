"""Numba's benchmarks and examples, functions unchanged; their decorators are replaced by the mode's.

BENCH_NUMBA_BENCHMARK and BENCH_NUMBA_EXAMPLES name checkouts of github.com/numba/numba-benchmark and
github.com/numba/numba-examples. While a module is loaded, `numba` is a stand-in whose decorators return the
function. Of examples, which are scripts, imports, constants and functions are executed only.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from bench.loop_programs.program import Call, Mode, Program, decorate_in, functions_of, load_file
from bench.loop_programs.suites.folders import folder_of
from bench.loop_programs.suites.statements import CallText

NUMPY = "import numpy as np; np.random.seed(0); "
PRICES = NUMPY + "s, k, t = np.random.rand(3, 2000) * [[25], [99], [9]] + [[5], [1], [0.25]]; "
INTEGERS = NUMPY + "a = np.random.randint(0, 99, 60000).astype(np.int32); "

IMPORTS = ("__future__", "math", "numba", "numpy", "time", "timeit")


class Entry(NamedTuple):
    """A name, a file of a checkout, and the call."""

    name: str
    path: str
    call: str


BENCHMARKS = (
    Entry("blackscholes", "bench_blackscholes.py",
          PRICES + "blackscholes(np.zeros(2000), np.zeros(2000), s, k, t, 0.02, 0.3)"),
    Entry("centdiff_1d", "bench_centdiff.py", NUMPY + "u = np.random.rand(40000); "
          "centered_difference_range1d(u, np.zeros(40000), 1.5)"),
    Entry("centdiff_2d", "bench_centdiff.py", NUMPY + "u = np.random.rand(120, 120); "
          "centered_difference_range2d(u, np.zeros((120, 120)), 1.5)"),
    Entry("gameoflife", "bench_gameoflife.py",
          NUMPY + "x = np.random.rand(70, 70) > 0.5; numba_life_step(x)"),
    Entry("ising", "bench_ising.py", NUMPY + "x = np.random.randint(0, 2, (50, 50)) * 2 - 1; update(x)"),
    Entry("laplace", "bench_laplace.py", "laplace(150, 200)"),
    Entry("nbody", "bench_nbody.py", "p, w = make_nbody_samples(100); run_numba_nbody(p, w)"),
    Entry("nbody_numpy", "bench_nbody.py", "p, w = make_nbody_samples(500); run_numpy_nbody(p, w)"),
    Entry("iterate_array", "bench_iterating.py", INTEGERS + "array_iter_1d(a)"),
    Entry("iterate_flat", "bench_iterating.py", INTEGERS + "b = a.reshape(300, 200); flat_iter(b)"),
    Entry("iterate_flat_index", "bench_iterating.py", INTEGERS + "b = a.reshape(300, 200); flat_index(b)"),
    Entry("iterate_ndindex", "bench_iterating.py", INTEGERS + "b = a.reshape(300, 200); ndindex(b)"),
    Entry("iterate_range_1d", "bench_iterating.py", INTEGERS + "range1d(a)"),
    Entry("iterate_range_2d", "bench_iterating.py", INTEGERS + "b = a.reshape(300, 200); range2d(b)"),
    Entry("iterate_range_2d_fortran", "bench_iterating.py",
          INTEGERS + "b = a.reshape(300, 200).T; range2d(b)"),
    Entry("iterate_nditer", "bench_iterating.py", INTEGERS + "nditer1(a)"),
    Entry("iterate_zip", "bench_iterating.py", INTEGERS + "zip_iter(a, a)"),
    Entry("iterate_zip_flat", "bench_iterating.py", INTEGERS + "b = a.reshape(300, 200); zip_flat(b, b)"),
    Entry("nanmean", "bench_numbagg.py", "nanmean(some_nans)"),
    Entry("move_nanmean", "bench_numbagg.py", "move_nanmean(some_nans, np.array([10]), np.zeros(n))"),
)
EXAMPLES = (
    Entry("histogram", "examples/density_estimation/histogram/impl.py",
          NUMPY + "numba_histogram(np.random.normal(size=20000), 50)"),
    Entry("kernel_density", "examples/density_estimation/kernel/impl.py",
          NUMPY + "numba_kde(np.random.normal(size=60), np.random.normal(size=150), np.full(150, 0.5))"),
    Entry("blackscholes_returned", "examples/finance/blackscholes/blackscholes_numba.py",
          PRICES + "black_scholes_numba(s, k, t, 0.02, 0.3)"),
    Entry("lennard_jones", "examples/physics/lennard_jones/numba_scalar_impl.py",
          NUMPY + "potential_numba_scalar(np.random.normal(0, 20, (120, 3)))"),
    Entry("bubblesort", "legacy/bubblesort.py", NUMPY + "bubblesort(np.random.randint(0, 999, 300))"),
    Entry("fbcorr", "legacy/fbcorr.py", NUMPY + "fbcorr(np.random.randn(2, 10, 10, 3), "
          "np.random.randn(4, 3, 3, 3), np.zeros((2, 4, 8, 8)))"),
    Entry("filter2d", "legacy/blur_image.py", NUMPY + "filter2d(np.random.rand(50, 50), np.ones((5, 5)))"),
    Entry("gaussian_blur", "legacy/gaussian-blur/gaussian-blur.py",
          NUMPY + "gaussian_blur_std(np.random.rand(60, 60), np.zeros((60, 60)))"),
    Entry("harris", "legacy/harris/harris_numba.py", NUMPY + "harris(np.random.rand(60, 60))"),
    Entry("julia", "legacy/juliaset/juliaset_numba.py",
          NUMPY + "iterate(50, np.random.rand(150, 150) * 0.3j, -0.7 + 0.1j)"),
    Entry("kmeans", "legacy/k-means/k-means_numba.py",
          NUMPY + "kmeans(np.random.rand(500, 4), 4, 3, 500, 4, np.random.rand(4, 4))"),
    Entry("kernel_density_rows", "legacy/kernel-density-estimation/kernel_density_estimation_numba.py",
          NUMPY + "kde(np.random.rand(1500))"),
    Entry("jacobi_relax", "legacy/laplace2d/laplace2d-numba.py",
          NUMPY + "jacobi_relax_core(np.random.rand(110, 110), np.zeros((110, 110)))"),
    Entry("linear_regression", "legacy/linear_regression/linear_regression_numba.py",
          NUMPY + "x, y = np.random.rand(2000, 10), np.random.rand(2000, 4); "
          "linear_regression(y, x, np.zeros((10, 4)), 200, 1e-5)"),
    Entry("logistic_regression", "legacy/logistic-regression/logistic_regression.py",
          NUMPY + "logistic_regression(np.random.rand(2000), np.random.rand(2000, 10), np.zeros(10), 200)"),
    Entry("mandel", "legacy/mandel/mandel_jit.py",
          NUMPY + "create_fractal(-2.0, 1.0, -1.0, 1.0, np.zeros((60, 90), dtype=np.uint8), 20)"),
    Entry("mergesort_inplace", "legacy/mergesort.py", NUMPY + "mergesort_inplace(np.random.rand(400))"),
    Entry("mergesort", "legacy/mergesort.py", NUMPY + "mergesort(np.random.rand(5000))"),
    Entry("move_mean", "legacy/movemean.py",
          NUMPY + "move_mean(np.random.rand(30000), np.array([9]), np.zeros(30000))"),
    Entry("exponentials", "legacy/nogil.py",
          NUMPY + "inner_func_nb(np.zeros(50000), np.random.rand(50000), np.random.rand(50000))"),
    Entry("radiation", "legacy/ra24.py", NUMPY + "ra_numba(120, np.deg2rad(np.random.rand(60, 60) * 50))"),
    Entry("sum2d", "legacy/sum.py", NUMPY + "sum2d(np.random.rand(300, 300))"),
)


def returned_unchanged(*arguments: Any, **options: Any) -> Any:
    """Stand in for `numba.jit` with and without arguments."""
    if len(arguments) == 1 and callable(arguments[0]) and not options:
        return arguments[0]
    return lambda function: function


class StandIn(ModuleType):
    """A module `numba` whose decorators do nothing; other names are decorators, too, or types never used."""

    prange = staticmethod(range)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return returned_unchanged


@contextmanager
def numba_replaced() -> Iterator[None]:
    """Let `import numba` find the stand-in."""
    hidden = sys.modules.get("numba")
    stand_in = StandIn("numba")
    stand_in.config = type("config", (), {"NUMBA_NUM_THREADS": 1})  # type: ignore[attr-defined]
    sys.modules["numba"] = stand_in
    try:
        yield
    finally:
        del sys.modules["numba"]
        if hidden is not None:
            sys.modules["numba"] = hidden


def load_functions(path: Path, name: str) -> ModuleType:
    """Return a module with the imports, constants and functions of a script."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) or _is_import(node) or (
        isinstance(node, ast.Assign) and isinstance(node.value, (ast.Constant, ast.Compare)))]
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(tree, str(path), "exec"), vars(module))
    return module


def _is_import(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    else:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [""]
    return all(name.partition(".")[0] in IMPORTS for name in names)


def _load(path: Path, entry: Entry, whole: bool, mode: Mode) -> Call:
    name = f"{mode.name}_{path.stem.replace('-', '_')}"
    with numba_replaced():
        module = load_file(path, name) if whole else load_functions(path, name)
        if whole:
            module.setup()
    call = CallText(entry.call)
    arguments = call.arguments(vars(module))
    helpers = [n for n in functions_of(module) if n not in ("main", "setup", "jit_setup")]
    return Call(decorate_in(module, call.function, helpers, mode), arguments)


def programs() -> list[Program]:
    """Return the programs of the checkouts; none without them."""
    found = []
    for variable, folder, entries, whole in (
            ("BENCH_NUMBA_BENCHMARK", "benchmarks", BENCHMARKS, True),
            ("BENCH_NUMBA_EXAMPLES", ".", EXAMPLES, False)):
        root = folder_of(variable)
        if root is not None:
            found += [Program("numba", variable[6:].lower(), entry.name,
                              partial(_load, root / folder / entry.path, entry, whole))
                      for entry in entries if (root / folder / entry.path).exists()]
    return found
