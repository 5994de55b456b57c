"""The disk cache of machine code: lookup, trust in directories, failures."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import jitla
from jitla.__main__ import main
from jitla.engine import ENGINE
from jitla.events import Event
from jitla.runtime import disk_cache as disk
from jitla.runtime.disk_cache import (
    MAGIC,
    MAX_ENTRY_BYTES,
    DiskCache,
    Usage,
    file_name,
    pack,
    parse,
)

# Machine code on disk: found again, trusted only where nobody else could write, never in the way.

ROOT = Path(__file__).resolve().parents[1]
CODE = bytes(range(256)) * 3


# ------------------------------------------------------------------------------ the form of an entry


def test_an_entry_holds_its_code() -> None:
    assert parse(pack("key", "maker", CODE), "key", "maker") == CODE
    assert parse(pack("", "", b""), "", "") == b""


def test_an_entry_of_another_key_or_maker_is_none() -> None:
    entry = pack("key", "maker", CODE)
    assert parse(entry, "yek", "maker") is None and parse(entry, "key", "another") is None
    assert parse(entry, "key\nmaker", "") is None


def test_every_byte_counts() -> None:
    entry = pack("key", "maker", CODE)
    for at in range(len(entry)):
        flipped = bytearray(entry)
        flipped[at] ^= 1 << at % 8
        assert parse(bytes(flipped), "key", "maker") is None, at


def test_an_entry_that_is_cut_or_grown_is_none() -> None:
    entry = pack("key", "maker", CODE)
    assert all(parse(entry[:n], "key", "maker") is None for n in range(len(entry)))
    assert parse(entry + b"\0", "key", "maker") is None
    assert parse(MAGIC + b"\xff" * 44, "key", "maker") is None


@pytest.mark.parametrize("key", ["../../x", "a" * 10_000, "\0", "naïve\n"])
def test_names_of_files_say_nothing(key: str) -> None:
    assert re.fullmatch(r"[0-9a-f]/[0-9a-f]{63}", file_name(key, "maker"))
    assert file_name(key, "maker") != file_name(key, "another")


# ------------------------------------------------------------------------------ the directory


def kept(at: Path) -> list[Path]:
    return [p for p in (at / "objects").rglob("*") if not p.is_dir()]


def entry_of(at: Path, key: str = "key") -> Path:
    return at / "objects" / file_name(key, "maker")


def test_what_is_put_is_got(tmp_path: Path) -> None:
    store = DiskCache(str(tmp_path / "new" / "directory"))
    assert store.get("key", "maker") is None and not (tmp_path / "new").exists()
    store.put("key", "maker", CODE)
    again = DiskCache(str(tmp_path / "new" / "directory"))
    assert store.get("key", "maker") == again.get("key", "maker") == CODE
    assert store.get("key", "another") is None and store.get("another", "maker") is None
    assert kept(tmp_path / "new" / "directory") == [entry_of(tmp_path / "new" / "directory")]
    assert store.usage() == Usage(1, len(pack("key", "maker", CODE))) == store.clear()
    assert store.usage() == Usage(0, 0) and store.get("key", "maker") is None


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_everything_is_the_users_alone(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        DiskCache(str(tmp_path / "a" / "b")).put("key", "maker", CODE)
    finally:
        os.umask(before)
    modes = {p.stat().st_mode & 0o777 for p in (tmp_path / "a").rglob("*") if p.is_dir()}
    assert modes == {0o700} and (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert entry_of(tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o600


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def filled(tmp_path: Path, told: list[str]) -> DiskCache:
    DiskCache(str(tmp_path)).put("key", "maker", CODE)
    return DiskCache(str(tmp_path), refuse=told.append)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_a_directory_that_others_can_write_is_refused(
    tmp_path: Path, filled: DiskCache, told: list[str], mode: int
) -> None:
    (tmp_path / "objects").chmod(mode)
    assert filled.get("key", "maker") is None
    filled.put("new", "maker", CODE)
    assert len(kept(tmp_path)) == 1 and filled.get("key", "maker") is None
    assert told == [f"{tmp_path}/objects can be written by others (mode {mode:o})"]


def test_a_directory_of_another_user_is_refused(
    filled: DiskCache, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert filled.get("key", "maker") is None and "another user" in told[0]


def test_a_program_with_rights_of_another_user_reads_nothing(
    filled: DiskCache, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert filled.get("key", "maker") is None and len(told) == 1


def test_a_link_is_not_followed(tmp_path: Path, filled: DiskCache) -> None:
    (tmp_path / "objects").rename(tmp_path / "elsewhere")
    (tmp_path / "objects").symlink_to(tmp_path / "elsewhere")
    assert filled.get("key", "maker") is None
    filled.put("new", "maker", CODE)
    assert len(list((tmp_path / "elsewhere").rglob("*"))) == 2


# ------------------------------------------------------------------------------ files that are not entries


def _link(place: Path) -> None:
    other = place.with_name("other")
    other.write_bytes(pack("key", "maker", CODE))
    place.symlink_to(other)


def _sparse(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(1 << 40)


def _shared(place: Path) -> None:
    place.write_bytes(pack("key", "maker", CODE))
    place.chmod(0o666)


BROKEN: dict[str, Callable[[Path], object]] = {
    "empty": lambda p: p.write_bytes(b""), "byte": lambda p: p.write_bytes(b"j"),
    "cut": lambda p: p.write_bytes(pack("key", "maker", CODE)[:-1]),
    "foreign": lambda p: p.write_bytes(pack("other", "maker", CODE)),
    "older": lambda p: p.write_bytes(pack("key", "older", CODE)),
    "torn": lambda p: p.write_bytes(pack("key", "maker", CODE)[:100] + bytes(len(CODE))),
    "link": _link, "sparse": _sparse, "shared": _shared, "pipe": os.mkfifo,
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_a_miss_and_goes(tmp_path: Path, filled: DiskCache, kind: str) -> None:
    place = entry_of(tmp_path)
    place.unlink()
    BROKEN[kind](place)
    assert filled.get("key", "maker") is None and not os.path.lexists(place)
    filled.put("key", "maker", CODE)
    assert filled.get("key", "maker") == CODE


def test_a_directory_in_the_place_of_a_file_stays_a_miss(tmp_path: Path, filled: DiskCache) -> None:
    entry_of(tmp_path).unlink()
    entry_of(tmp_path).mkdir()
    assert filled.get("key", "maker") is None
    filled.put("key", "maker", CODE)
    filled.put("new", "maker", CODE)
    assert filled.get("key", "maker") is None and filled.get("new", "maker") == CODE
    assert len(kept(tmp_path)) == 1


def test_what_is_too_large_is_not_kept(tmp_path: Path) -> None:
    DiskCache(str(tmp_path)).put("key", "maker", bytes(MAX_ENTRY_BYTES))
    assert kept(tmp_path) == []


# ------------------------------------------------------------------------------ disks that fail


def failing(error: int, monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    """Let the functions `names` of `os` fail; return their calls."""
    calls: list[str] = []
    for name in names:
        def fail(*args: object, name: str = name, **kwargs: object) -> None:
            calls.append(name)
            raise OSError(error, os.strerror(error))
        monkeypatch.setattr(os, name, fail)
    return calls


@pytest.mark.timing
@pytest.mark.parametrize("name", ["rename", "mkdir", "open"])
def test_a_failing_disk_is_left_alone_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen: list[Event] = []
    store = DiskCache(str(tmp_path / "new"), observe=seen.append)
    calls = failing(errno.ENOSPC, monkeypatch, name)
    for k in range(10):
        store.put(f"key{k}", "maker", CODE)
    assert len(calls) == disk.MAX_FAILURES == len(seen)
    assert {str(e) for e in seen} == {"disk.failed: not written: No space left on device"}
    assert kept(tmp_path / "new") == []
    monkeypatch.undo()
    assert store.get("key0", "maker") is None  # reading goes on
    monkeypatch.setattr(disk.time, "monotonic", lambda later=time.monotonic() + 2 * disk.PAUSE_SECONDS: later)
    store.put("key", "maker", CODE)
    assert store.get("key", "maker") == CODE


def test_a_slow_disk_is_left_alone(filled: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(disk.time, "monotonic", lambda: float(next(clock)))
    found = [filled.get("key", "maker") for _ in range(6)]
    assert found == [CODE] * disk.MAX_FAILURES + [None] * 3


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        """Takes ten bytes of each write until nothing is left."""

        def __init__(self, handle: int) -> None:
            self.handle, self.left = handle, 200

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *rest: object) -> None:
            os.close(self.handle)

        def write(self, data: memoryview) -> int:
            if self.left <= 0:
                raise OSError(errno.ENOSPC, "full")
            self.left -= 10
            return os.write(self.handle, data[:10])

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", lambda handle, *rest, **options: Full(handle))
        DiskCache(str(tmp_path)).put("key", "maker", CODE)
        assert kept(tmp_path) == []
        patch.setattr(Full.__init__, "__code__", Full.__init__.__code__.replace(
            co_consts=tuple(10**6 if c == 200 else c for c in Full.__init__.__code__.co_consts)))
        DiskCache(str(tmp_path)).put("key", "maker", CODE)
    assert DiskCache(str(tmp_path)).get("key", "maker") == CODE  # short writes go on where they ended


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", interrupt)
        with pytest.raises(KeyboardInterrupt):
            DiskCache(str(tmp_path)).put("key", "maker", CODE)
    assert kept(tmp_path) == []


@pytest.mark.parametrize("directory", [os.devnull, "/proc/nothing", "a\0b", "x" * 5000, "\udcff/\ud800"])
def test_a_directory_that_cannot_be_is_no_error(directory: str) -> None:
    store = DiskCache(directory)
    store.put("key", "maker", CODE)
    assert store.get("key", "maker") is None


def test_handles_are_closed(filled: DiskCache, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for k in range(100):
        filled.get("key", "maker")
        filled.get("none", "maker")
        filled.put(f"key{k}", "maker", CODE)
    (tmp_path / "objects").chmod(0o777)
    filled.get("key", "maker")
    assert not before or len(os.listdir("/proc/self/fd")) == before


# ------------------------------------------------------------------------------ how much is kept


def test_what_was_used_last_stays(tmp_path: Path) -> None:
    store = DiskCache(str(tmp_path), 1 << 20)
    data = os.urandom(10_000)
    for k in range(400):
        store.put(f"key{k}", "maker", data)
        place = entry_of(tmp_path, f"key{k}")
        os.utime(place, (k + 1e6, k + 1e6))
        assert store.get("key0", "maker") == data  # reading marks it as used
        os.utime(entry_of(tmp_path, "key0"), (2e6, 2e6))
    assert 0.6 * (1 << 20) < store.usage().nbytes < 1.3 * (1 << 20)
    assert store.get("key0", "maker") is not None and store.get("key1", "maker") is None


@pytest.mark.timing
def test_reading_marks_a_file_as_used(tmp_path: Path, filled: DiskCache) -> None:
    os.utime(entry_of(tmp_path), (1e6, 1e6))
    filled.get("key", "maker")
    assert abs(entry_of(tmp_path).stat().st_mtime - time.time()) < 60


@pytest.mark.timing
def test_files_that_nobody_writes_any_more_go(tmp_path: Path) -> None:
    store = DiskCache(str(tmp_path), 1 << 20)
    store.put("key", "maker", CODE)
    shard = entry_of(tmp_path).parent
    for name, age in (("old", 2 * disk.ORPHAN_SECONDS), ("new", 0)):
        (shard / f".new-{name}").write_bytes(b"half")
        os.utime(shard / f".new-{name}", (time.time() - age,) * 2)
    root = os.open(tmp_path / "objects", os.O_RDONLY)
    store._trim(root, shard.name)
    os.close(root)
    assert sorted(p.name for p in shard.iterdir()) == [".new-new", entry_of(tmp_path).name]


# ------------------------------------------------------------------------------ several at once


@pytest.mark.threads
def test_threads_may_read_write_and_clear_at_once(tmp_path: Path) -> None:
    wrong: list[object] = []

    def work(k: int) -> None:
        store = DiskCache(str(tmp_path), 100_000, refuse=wrong.append)
        for turn in range(60):
            key = f"key{(turn * k) % 7}"
            store.put(key, "maker", key.encode() * 500)
            found = store.get(key, "maker")
            if found not in (None, key.encode() * 500):
                wrong.append(found)
            if turn % 20 == 19:
                store.clear()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and not [p for p in kept(tmp_path) if p.name.startswith(".new")]


# ------------------------------------------------------------------------------ in use

SOURCE = """
import sys
import numpy as np
import jitla
from jitla.codegen.jit import Jit
made = []
emit = Jit._emit
Jit._emit = lambda *args: made.append(1) or emit(*args)
@jitla.jit(compile="sync")
def f(x, y):
    return ((x * y + 1.0) ** 2).sum(), np.exp(x - y)
total, more = f(np.arange(4000.0), np.full(4000, 0.5))
print(len(made), sum(r.plans for r in jitla.recompilations(f)), total, more.sum())
"""


def run(tmp_path: Path, **environment: str) -> list[str]:
    (tmp_path / "script.py").write_text(SOURCE)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, check=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT), "JITLA_CACHE_DIR": str(tmp_path)} | environment)
    return done.stdout.split()


@pytest.mark.process
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    first, second = run(tmp_path), run(tmp_path)
    assert int(first[0]) > 2 and int(first[1]) == 1 and second[:2] == ["0", "0"] and first[2:] == second[2:]
    files = {p: p.stat().st_mtime_ns for p in kept(tmp_path)}
    other = run(tmp_path, JITLA_CPU="x86-64-v2")
    assert int(other[0]) > 2 and files.items() <= {p: p.stat().st_mtime_ns for p in kept(tmp_path)}.items()
    for place in kept(tmp_path):
        place.write_bytes(place.read_bytes()[:-8] + bytes(8))
    assert run(tmp_path) == first


@pytest.mark.process
def test_the_option_turns_it_off(tmp_path: Path) -> None:
    assert int(run(tmp_path, JITLA_DISK_CACHE="0")[0]) > 2 and kept(tmp_path) == []


def test_a_refused_directory_warns_once(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects").chmod(0o777)
    with jitla.options(cache_dir=tmp_path), pytest.warns(jitla.CacheWarning, match="written by") as seen:
        store = ENGINE.disk()
        assert store is not None and store.get("key", "maker") is None
        store.put("key", "maker", CODE)
    assert len(seen) == 1 and kept(tmp_path) == []


def test_a_warning_that_is_an_error_ends_no_program(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects").chmod(0o777)
    with jitla.options(cache_dir=tmp_path), warnings.catch_warnings():
        warnings.simplefilter("error")
        store = ENGINE.disk()
        assert store is not None and store.get("key", "maker") is None


def test_the_command_line_tells_and_clears(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with jitla.options(cache_dir=tmp_path):
        assert main(["cache", "info"]) == 0
        assert "cached: 0 files of machine code and plans, 0.0 MB of 268 MB" in capsys.readouterr().out
        DiskCache(str(tmp_path)).put("key", "maker", bytes(200_000))
        assert main(["cache", "info"]) == 0
        told = capsys.readouterr().out
        assert f"{tmp_path}/objects\ncached: 1 files of machine code and plans, 0.2 MB" in told
        assert main(["cache", "clear"]) == 0 and kept(tmp_path) == []
        assert "removed: 1 files of machine code and plans" in capsys.readouterr().out
        (tmp_path / "objects").chmod(0o777)
        assert main(["cache", "clear"]) == 1 and "can be written by others" in capsys.readouterr().out
    assert main(["cache"]) == 2 and main(["cache", "eat"]) == 2
