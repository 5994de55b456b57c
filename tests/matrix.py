"""A part of the tests on every Python that is installed, with the oldest and the newest NumPy for it."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: The oldest NumPy for each Python: at least what pyproject.toml asks for, and with wheels.
OLDEST = {"3.11": "2.3.0", "3.12": "2.3.0", "3.13": "2.3.0", "3.14": "2.3.2"}
NEEDED = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "mpmath", "pandas")
#: What depends on the interpreter or on NumPy: bytecode, object layouts, loops, printing, promotion.
TESTS = (
    "tests/test_api.py", "tests/test_config.py", "tests/test_loading.py", "tests/behaviour",
    "tests/instrument",
    "tests/tracing", "tests/runtime", "tests/recompile", "tests/plans", "tests/codegen/test_pool.py",
    "tests/codegen/test_memory.py", "tests/codegen/test_tape.py",
    "tests/semantics/test_rows.py", "tests/semantics/test_capture.py",
    "tests/semantics/test_environment.py", "tests/semantics/test_fp_warnings.py",
)
RATIO = """
import time, numpy as np, jitla
def f(x, y, z): return np.exp(x * y) - z, (x * y + z).sum()
g, arrays = jitla.jit(f), np.random.default_rng(0).random((3, 1_000_000))
def best(call): return min(timed(call) for _ in range(15))
def timed(call):
    start = time.perf_counter()
    call(*arrays)
    return time.perf_counter() - start
g(*arrays)
print(f"{np.__version__} {best(f) / best(g):.1f}")
"""


def interpreters(version: str) -> Iterator[str]:
    """Paths where Python `version` may be."""
    found = shutil.which(f"python{version}")
    yield from [found] if found else []
    pyenv = Path.home() / ".pyenv" / "versions"
    yield from (str(p) for p in sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True))
    if shutil.which("uv"):
        yield from run(["uv", "python", "find", version]).stdout.split()


def python(version: str) -> str | None:
    """An interpreter that is of `version`, None if there is none."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    return next((path for path in interpreters(version)
                 if run([path, "-c", ask]).stdout.strip() == version), None)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def environment(interpreter: str, directory: Path, numpy: str) -> str:
    """The interpreter of an environment with `numpy` ("==2.0.0", or nothing for the newest), or why not."""
    inside = directory / "bin" / "python"
    made = run([interpreter, "-m", "venv", str(directory)])
    if not made.returncode:
        wheels = ["--only-binary", "numpy,scipy,llvmlite,numba"]
        wanted = ["-e", ".", f"numpy{numpy}", *NEEDED]
        made = run([str(inside), "-m", "pip", "install", "--quiet", *wheels, *wanted])
    if made.returncode:
        raise OSError((made.stderr.strip().splitlines() or ["cannot be installed"])[-1])
    return str(inside)


def outcome(inside: str, tests: list[str], jobs: int) -> tuple[bool, str]:
    """Whether the tests pass, and what is to be said of them."""
    script = ROOT / ".matrix" / "ratio.py"
    script.write_text(RATIO)
    there = [t for t in tests if (ROOT / t).exists()]
    options = ["-q", "-n", str(jobs), "--dist", "worksteal", "-p", "no:cacheprovider", "-m", "not slow"]
    done = run([inside, "-m", "pytest", *options, *there])
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()[-200:]]
    failed = "".join(f"\n    {line}" for line in lines if re.match("FAILED|ERROR", line))
    version, ratio = (run([inside, str(script)]).stdout.split() + ["?", "?"])[:2]
    text = f"NumPy {version:<8} {lines[-1].strip('= ')}; {ratio} times NumPy's speed{failed}"
    return not done.returncode, text


def main() -> int:
    """Run the matrix."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pythons", nargs="*", default=list(OLDEST), choices=list(OLDEST))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("tests", nargs="*", default=list(TESTS))
    given = parser.parse_args()
    bad = 0
    for version in given.pythons:
        interpreter = python(version)
        if interpreter is None:
            print(f"{version}: not installed", flush=True)
            continue
        for name, numpy in (("oldest", f"=={OLDEST[version]}"), ("newest", "")):
            try:
                inside = environment(interpreter, ROOT / ".matrix" / f"{version}-{name}", numpy)
                good, text = outcome(inside, given.tests, given.jobs)
            except OSError as error:
                good, text = False, f"{name} NumPy: {error}"
            bad += not good
            print(f"{version}: {text}", flush=True)
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
