"""A copy of the tests that the installed NumPy carries, as user code of this machine.

Installed packages are library code, which is not traced: hence a copy outside of them.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np

PACKAGES = ("_core", "lib", "linalg", "fft", "random", "polynomial", "ma")
TOP = "numpy_tests"
_INI = """[pytest]
addopts = --assert=plain -p no:cacheprovider -m "not slow" --tb=short --disable-warnings
"""


def version() -> str:
    """Return what results depend on: the versions of NumPy and Python."""
    return f"{np.__version__}-py{sys.version_info.major}{sys.version_info.minor}"


def prepared(home: Path) -> Path:
    """Return the folder with the copy, made if there is none yet for this NumPy."""
    folder = home.resolve() / version()
    if not folder.exists():
        new = folder.with_name(f"{folder.name}-{os.getpid()}")
        _copy(new)
        try:
            new.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(new)
    return folder


def _copy(folder: Path) -> None:
    source = Path(np.__file__).parent
    top = folder / TOP
    top.mkdir(parents=True)
    (folder / "pytest.ini").write_text(_INI, encoding="utf-8")
    (top / "__init__.py").touch()
    shutil.copy(source / "conftest.py", top)
    for package in PACKAGES:
        tests = top / package / "tests"
        shutil.copytree(source / package / "tests", tests,
                        ignore=shutil.ignore_patterns("__pycache__"))
        for place in (tests, tests.parent):
            (place / "__init__.py").touch()


def found_files(folder: Path) -> list[Path]:
    """Return the test files of the copy, relative to `folder`."""
    found = [path for package in PACKAGES
             for path in (folder / TOP / package / "tests").glob("test_*.py")]
    return sorted(path.relative_to(folder) for path in found)
