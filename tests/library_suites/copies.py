"""SciPy under another name, and where scikit-learn is.

Functions of modules named `scipy` are never traced, and installed files are library code. Hence a copy of
the installed package in a folder of its own, with a name of as many letters, which is put in the place of the
old one in Python files and in extension modules. There it is needed, too: modules of Cython import each other
by name. Names of theirs that are read by Python are in a compressed table; where the table with the new name
does not fit into the old place, lines of examples in its documentation are made blank. Where there are none,
it stays as it is: functions of that extension say that they are of `scipy`, and what it imports in Python is
the original. Of SciPy 1.17 that is `linalg` in `_bglu_dense`, and `fft`, `linalg`, `sparse.linalg` in
`_decomp_interpolative`; `left_alone` tells which extensions they are.

Extensions of older releases have no such tables; what one of them imports of `scipy` itself is the original.

Not renamed: symbols (`scipy_dgemm_`), environment variables, and text in which the name is part of a word.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

NAMES = {"scipy": "scips", "sklearn": "sklearn"}
_PROJECTS = {"scipy": "scipy", "sklearn": "scikit-learn"}
_OLD, _NEW = "scipy", NAMES["scipy"]
_WORD = re.compile(rf"(?<![\w.]){_OLD}(?!\w|\.org)|(?<=`){_OLD}(?=\.)")
_MODULE = re.compile(rb"(?<![\w.])scipy(?=\.(?!libs\b)\w)")
# Names are not separated there; functions such as `_to_scipy` keep theirs, and types such as scipy_7spatial,
# of which all sides have to say the same.
_TABLE = re.compile(rb"(?<!_to_)(?<!from_)scipy(?!_)")
_EXAMPLE = re.compile(rb"(?<=>>> ).*")
_ZLIB = re.compile(rb"\x78[\x01\x5e\x9c\xda]")
_LEAST = 50  # bytes of a table
_INI = """[pytest]
addopts = --assert=plain -p no:cacheprovider -p no:randomly -m "not slow" --tb=short --disable-warnings
filterwarnings =
    default
"""


def site_packages() -> Path:
    """Return the folder where the libraries are installed."""
    return Path(np.__file__).parents[1]


def version(suite: str) -> str:
    """Return what results depend on: the versions of the library, NumPy and Python."""
    library = importlib.metadata.version(_PROJECTS[suite])
    return f"{suite}{library}-numpy{np.__version__}-py{sys.version_info.major}{sys.version_info.minor}"


def prepared(home: Path, suite: str) -> tuple[Path, Path]:
    """Return the folder that has the package, and the file of pytest's options."""
    home = home.resolve()
    home.mkdir(parents=True, exist_ok=True)
    options = home / "pytest.ini"
    if not options.exists() or options.read_text(encoding="utf-8") != _INI:
        options.write_text(_INI, encoding="utf-8")
    if suite != "scipy":
        return site_packages(), options
    folder = home / version(suite)
    if not folder.exists():
        new = folder.with_name(f"{folder.name}-{os.getpid()}")
        _copy(site_packages(), new)
        try:
            new.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(new)
    return folder, options


def found_files(folder: Path, suite: str) -> list[Path]:
    """Return the test files of a library, relative to `folder`."""
    found = (folder / NAMES[suite]).glob("**/tests/**/test_*.py")
    return sorted(path.relative_to(folder) for path in found)


def _copy(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    libraries = source / "scipy.libs"
    if libraries.exists():  # where a wheel brings them
        (folder / libraries.name).symlink_to(libraries)
    shutil.copytree(source / _OLD, folder / _NEW, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder / _NEW).rglob("*"):
        if path.suffix in (".py", ".pyi"):
            path.write_text(renamed_text(path.read_text(encoding="utf-8")), encoding="utf-8")
        elif path.suffix == ".so":
            path.write_bytes(renamed_binary(path.read_bytes())[0])


def renamed_text(text: str) -> str:
    """Return the text of a module with the new name."""
    return _WORD.sub(_NEW, text)


def renamed_binary(data: bytes) -> tuple[bytes, int]:
    """Return an extension module with the new name, and the number of tables left as they are."""
    made, left = bytearray(_MODULE.sub(_NEW.encode(), data)), 0
    for start, size, text in _tables(data):
        table = _packed(_TABLE.sub(_NEW.encode(), text), size)
        if len(table) <= size:
            made[start:start + size] = table + bytes(size - len(table))  # what follows a table is not read
        else:
            left += 1
    assert len(made) == len(data)
    return bytes(made), left


def left_alone(folder: Path) -> list[str]:
    """Return the installed extension modules with a table that has no room for the new name."""
    return [str(path.relative_to(folder)) for path in sorted((folder / _OLD).rglob("*.so"))
            if renamed_binary(path.read_bytes())[1]]


def _tables(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    for match in _ZLIB.finditer(data):
        reader = zlib.decompressobj()
        try:
            text = reader.decompress(data[match.start():])
        except zlib.error:
            continue  # two bytes that only look like the beginning of one
        if reader.eof and len(text) > _LEAST and _OLD.encode() in text:
            yield match.start(), len(data) - match.start() - len(reader.unused_data), text


def _packed(text: bytes, size: int) -> bytes:
    """Return `text`, compressed to at most `size` bytes if blank lines of examples are enough for that."""
    table = _smallest(text)
    for match in _EXAMPLE.finditer(text):
        if len(table) <= size:
            break
        text = text[:match.start()] + b" " * len(match.group()) + text[match.end():]
        table = _smallest(text)
    return table


def _smallest(text: bytes) -> bytes:
    """Return the smallest of the ways to compress `text`."""
    made = []
    for memory in (9, 8, 7, 6):
        for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED):
            writer = zlib.compressobj(9, zlib.DEFLATED, 15, memory, strategy)
            made.append(writer.compress(text) + writer.flush())
    return min(made, key=len)
