"""Entries of the disk cache that are not what was written there."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from pathlib import Path

from jitla.codegen.jit import Jit
from jitla.engine import ENGINE
from jitla.runtime.disk_cache import (
    MAGIC,
    pack,
)
from tests.faults.running import check, fault, files, fill

Change = Callable[[bytes], bytes]


def change_all(at: Path, change: Change) -> None:
    """Fill the cache, change every entry, and run what needs them."""
    fill(at)
    before = {p: p.read_bytes() for p in files(at)}
    for place, entry in before.items():
        place.write_bytes(change(entry))
    check(at)
    assert {p: p.read_bytes() for p in files(at)} == before, "entries were not written again"


@fault(0, 1, 7, 8, 9, 39, 40, 41, 51, 52, 53, 64, 100, 128, 192, 256, 320, 512, 1024, -64, -8, -1)
def cut(at: Path, size: int) -> None:
    change_all(at, lambda entry: entry[:size])


@fault(0, 4, 6, 7, 8, 24, 39, 40, 43, 44, 51, 52, 60, 200, 300, 500, -500, -64, -2, -1)
def flipped(at: Path, place: int) -> None:
    def flip(entry: bytes) -> bytes:
        changed = bytearray(entry)
        changed[place] ^= 0x20
        return bytes(changed)
    change_all(at, flip)


@fault(*range(10))
def scrambled(at: Path, seed: int) -> None:
    draw = random.Random(seed)

    def scramble(entry: bytes) -> bytes:
        changed = bytearray(entry)
        for _ in range(draw.randint(1, 40)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        return bytes(changed)
    change_all(at, scramble)


OTHER: dict[str, Change] = {
    "zeros": lambda entry: bytes(len(entry)), "torn": lambda entry: entry[:512] + bytes(len(entry) - 512),
    "longer": lambda entry: entry + b"\0", "text": lambda entry: b"#!/bin/sh\nexit 1\n" * 100,
    "pickle": lambda entry: b"\x80\x04cos\nabort\n)R.",
    "older": lambda entry: pack("k", "jitla 0.0.1", entry),
    "twice": lambda entry: entry + entry, "form": lambda entry: MAGIC[:6] + b"\x02\n" + entry[8:],
    "huge": lambda entry: entry[:44] + b"\xff" * 8 + entry[52:],
}


@fault(*OTHER)
def foreign(at: Path, kind: str) -> None:
    change_all(at, OTHER[kind])


@fault()
def exchanged(at: Path) -> None:
    fill(at)
    before = {p: p.read_bytes() for p in files(at)}
    for place, entry in zip(before, [*list(before.values())[1:], next(iter(before.values()))], strict=True):
        place.write_bytes(entry)
    check(at)
    assert {p: p.read_bytes() for p in files(at)} == before


def _put(at: Path, make: Callable[[Path], object]) -> None:
    fill(at)
    for place in files(at):
        place.unlink()
        make(place)
    check(at)


def _bound(place: Path) -> None:
    here = os.getcwd()
    os.chdir(place.parent)
    socket.socket(socket.AF_UNIX).bind(place.name)
    os.chdir(here)


def _long(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(1 << 40)


KINDS: dict[str, Callable[[Path], object]] = {
    "directory": Path.mkdir, "pipe": os.mkfifo, "link": lambda p: p.symlink_to("/etc/passwd"),
    "loop": lambda p: p.symlink_to(p.name), "sparse": _long, "socket": _bound,
    "device": lambda p: p.symlink_to("/dev/zero"), "closed": lambda p: (p.write_bytes(b"x"), p.chmod(0)),
    "open": lambda p: (p.write_bytes(b"x"), p.chmod(0o666)),
}


@fault(*KINDS)
def no_file(at: Path, kind: str) -> None:
    _put(at, KINDS[kind])


def _contents(at: Path, change: Change, code: bool) -> None:
    """Change machine code, or plans, themselves, below a checksum that is right."""
    fill(at)
    for place in files(at):
        entry = place.read_bytes()
        start = 52 + int.from_bytes(entry[40:44], "little")
        if entry.startswith(b"\x7fELF", start) is code:
            key, maker = entry[52:start].decode().split("\n")
            place.write_bytes(pack(key, maker, change(entry[start:])))
    check(at)


CODE: dict[str, Change] = {
    "nothing": lambda code: b"", "noise": lambda code: random.Random(1).randbytes(len(code)),
    "half": lambda code: code[:len(code) // 2], "header": lambda code: code[:64],
    "sections": lambda code: code[:40] + b"\xff" * 8 + code[48:], "other": lambda code: _other_code(),
}


def _other_code() -> bytes:
    return Jit().compile("declare void @nobody_has_this()\n"
                         "define void @other() { call void @nobody_has_this() ret void }")


@fault(*CODE)
def machine_code(at: Path, kind: str) -> None:
    _contents(at, CODE[kind], code=True)


PLANS: dict[str, Change] = {
    "nothing": lambda plan: b"", "noise": lambda plan: random.Random(1).randbytes(len(plan)),
    "half": lambda plan: plan[:len(plan) // 2], "none": lambda plan: b"null", "empty": lambda plan: b"[]",
    "place": lambda plan: b'["elsewhere"' + plan[plan.index(b","):],
}


@fault(*PLANS)
def plans(at: Path, kind: str) -> None:
    _contents(at, PLANS[kind], code=False)


@fault()
def other_processor(at: Path) -> None:
    """Code for another processor is beside this one's, and neither is taken for the other."""
    fill(at)
    before = len(files(at))
    check(at, compile="sync")
    ENGINE._backends.clear()
    check(at)
    assert len(files(at)) == before
