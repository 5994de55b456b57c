"""Test cases of Pythran and its author's NumPy benchmarks, functions unchanged.

BENCH_PYTHRAN and BENCH_NUMPY_BENCHMARKS name checkouts of github.com/serge-sans-paille/pythran and
.../numpy-benchmarks. Calls are those of the comments `#bench`, `#runas` and `#run`; where these are of a size
for compiled code, or are missing, calls are written here. Of the benchmarks, those with loops are taken. All
functions of a module are decorated.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from bench.loop_programs.program import Call, Mode, Program, decorate_in, functions_of, load_file
from bench.loop_programs.suites.folders import folder_of
from bench.loop_programs.suites.statements import CallText

NUMPY = "import numpy as np; np.random.seed(0); "
# Calls by case of Pythran; "bench" and "runas" stand for the call in such a comment.
CASES = {
    "allpairs": NUMPY + "a = np.random.rand(60, 30); b = np.random.rand(60, 30); sqr_dists_loops(a, b)",
    "allpairs_distances": NUMPY + "dists(np.random.rand(60, 30), np.random.rand(50, 30))",
    "allpairs_distances_loops": NUMPY + "dists(np.random.rand(60, 30), np.random.rand(50, 30))",
    "check_mask": NUMPY + "db = np.random.rand(3000, 4) > 0.5; check_mask(db, np.zeros(3000, bool))",
    "collatz": "collatz(1000)", "d2q9_nxnyns": "runas", "descent": "runas",
    "deuxd_convolution": NUMPY + "x = np.tri(40, 40) * 0.5; w = np.tri(5, 5) * 0.25; conv(x, w)",
    "diffusion_numpy": "runas",
    "diffusion_pure_python": NUMPY + "u = np.zeros((40, 40)); u[20, 20] = 1000.0; t = np.zeros((40, 40)); "
                                     "diffusePurePython(u, t, 10)",
    "euler_challenge14": "euler14(30000)",
    "fbcorr_numpy": NUMPY + "a = np.random.rand(2, 10, 10, 3); b = np.random.rand(4, 3, 3, 3); "
                            "out = np.zeros((2, 4, 8, 8)); fbcorr(a, b, out)",
    "fdtd": NUMPY + "a = np.arange(2500.0).reshape(50, 50); fdtd(a, 8)",
    "fft": NUMPY + "a = np.ones(2 ** 10, dtype=complex); fft(a)",
    "grayscott": "runas", "growcut": "test(14)",
    "hyantes_core_numpy": "import numpy; run(0., 0., 90., 90., 1., 100., 12, 12, "
                          "numpy.array([[i / 10., i / 10., i / 20.] for i in range(160)]))",
    "ising": NUMPY + "x = np.random.randint(0, 2, (25, 25)) * 2 - 1; ising_step(x)",
    "julia_pure_python": "kernel(0.1, 0.1, -0.4, 0.2, 1000.0, 100000)",
    "lapl2d": NUMPY + "x = np.random.rand(150, 150); y = np.zeros((150, 150)); lapl2d(x, y, 100)",
    "lttb_pt": NUMPY + "t = np.random.rand(20000, 2); downsample(t, 500)",
    "lu": NUMPY + "x = np.random.rand(40, 41); factorMatrix1(x)",
    "make_decision": NUMPY + "s = np.random.rand(2000) + 1j * np.random.rand(2000); md(s, s[:64].copy())",
    "monte_carlo_pricer": NUMPY + "p = np.full((500, 300), 99.0); monte_carlo_pricer(p, 0.01, 0.05, 0.3)",
    "morphology": NUMPY + "image = np.tri(100, 120) / 2.0; dilate_decompose_loops(image, 4)",
    "nd_local_maxima": NUMPY + "x = np.random.rand(5, 4, 3, 2); local_maxima(x)",
    "pairwise_numpy": NUMPY + "x = np.random.rand(30, 30); pairwise(x)",
    "projection_simplex": NUMPY + "x = np.random.rand(50000); projection_simplex(x, 1)",
    "queens_numba": "solve(7)", "rand_mat_stat": "rand_mat_stat(300)",
    "shallow_water": "run(40, 40, 100)",
    "slowparts": NUMPY + "d = 20; re = 5; a, b = np.ones((d, 2 * d)), np.ones((d + 1, re, d)); "
                         "c, e = np.ones((2 * d, d + 1, re)), np.ones((d, d + 1, re)); "
                         "slowparts(d, re, c, e, a, a, b, b, 1)",
    "smoothing": NUMPY + "a = np.random.rand(60000); smoothing(a, 0.4)",
    "stone": "whetstone(20)", "sumarray3d": NUMPY + (
        "n = 60; pos = np.random.rand(n, 3).astype(np.float32); w = np.ones(n, np.float32); "
        "p = np.random.rand(n, 3).astype(np.float32); summation(pos, w, p)"),
    "wave_simulation": "test(3000)",
    "wdist": NUMPY + "a = np.random.rand(8, 60); b = np.random.rand(8, 60); w = np.random.rand(8, 60); "
                     "slow_wdist(a, b, w)",
}


def _comment(text: str, key: str) -> str | None:
    found = re.search(rf"^#\s*{key}:?\s(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else None


def _load(path: Path, call_text: str, mode: Mode) -> Call:
    module = load_file(path, f"{mode.name}_{path.stem}", path.parent)
    call = CallText(call_text)
    arguments = call.arguments(vars(module))
    return Call(decorate_in(module, call.function, functions_of(module), mode), arguments)


def _cases(root: Path) -> list[Program]:
    found = []
    for name, call in CASES.items():
        path = root / "pythran" / "tests" / "cases" / f"{name}.py"
        if not path.exists():
            continue
        text = _comment(path.read_text(encoding="utf-8"), call) if call in ("bench", "runas") else call
        if text is not None:
            found.append(Program("pythran", "cases", name, partial(_load, path, text)))
    return found


def _benchmarks(root: Path) -> list[Program]:
    found = []
    for path in sorted((root / "numpy_benchmarks" / "benchmarks").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        setup, run = _comment(text, "setup"), _comment(text, "run")
        if run is not None and re.search(r"^\s+(for|while) ", text, re.MULTILINE):
            call = "; ".join(filter(None, [setup, run]))
            name = f"np.{path.stem}"
            found.append(Program("pythran", "numpy-benchmarks", name, partial(_load, path, call)))
    return found


def programs() -> list[Program]:
    """Return the programs of the checkouts; none without them."""
    cases, benchmarks = folder_of("BENCH_PYTHRAN"), folder_of("BENCH_NUMPY_BENCHMARKS")
    return [*(_cases(cases) if cases else ()), *(_benchmarks(benchmarks) if benchmarks else ())]
