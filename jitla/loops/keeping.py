"""Objects of loops from process to process: who finds one compiles nothing.

Knows: what an object depends on. Must not know: directories, how anything is compiled.
Receives texts, and what keeps machine code; returns names and object bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol


class Shelf(Protocol):
    """Keeps machine code under a key; `maker` says what made it, and for which processor."""

    def get(self, key: str, maker: str) -> bytes | None:
        """Return what is kept under `key`."""
        ...

    def put(self, key: str, maker: str, code: bytes) -> None:
        """Keep `code`."""
        ...


# What keeps machine code here, and what makes it; None where nothing is kept.
Kept = Callable[[], tuple[Shelf, str]] | None
Ask = Callable[[str, tuple[str, ...]], tuple[str, bytes]]


def kept(text: str, pointers: tuple[str, ...], ask: Ask, program: str, kept_by: Kept) -> tuple[str, bytes]:
    """Return name and object of what is made of `text`, from the shelf if they are there."""
    if kept_by is None:
        return ask(text, pointers)
    shelf, processor = kept_by()
    maker = f"{processor} {_compiler(program)}"
    key = _key(text, pointers)
    found = shelf.get(key, maker)
    if found is None:
        name, data = ask(text, pointers)
        shelf.put(key, maker, name.encode() + b"\n" + data)
        return name, data
    first, _, data = found.partition(b"\n")
    return first.decode(), data


def _key(text: str, pointers: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(["loop", text, list(pointers)]).encode()).hexdigest()


@cache
def _compiler(program: str) -> str:
    """Say what compiles: the releases of Numba and llvmlite, by the files they say it in, and who calls them.

    Asked of the packages' metadata it would take a fourth of all that a process loads for its first loop.
    """
    found = hashlib.sha256(Path(program).read_bytes())
    for package in ("numba", "llvmlite"):
        spec = find_spec(package)
        release = Path(spec.origin).with_name("_version.py") if spec and spec.origin else None
        found.update(release.read_bytes() if release and release.exists() else b"unknown")
    return f"Numba {found.hexdigest()}"
