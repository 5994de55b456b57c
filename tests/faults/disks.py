"""Directories that are not there, or not ours, and disks that fail."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jitla.runtime.disk_cache import DiskCache
from tests.faults.running import (
    SECONDS,
    X,
    Y,
    check,
    decorated,
    ended,
    fault,
    files,
    fill,
    in_child,
    same,
    tidy,
)

# ------------------------------------------------------------------------------ where


def _linked(at: Path) -> None:
    (at / "elsewhere").mkdir(parents=True)
    (at / "objects").symlink_to(at / "elsewhere")


def _as_file(at: Path) -> None:
    at.mkdir()
    (at / "objects").write_text("no directory")


PLACES: dict[str, Callable[[Path], object]] = {
    "null": lambda at: at.symlink_to(os.devnull), "file": lambda at: at.write_text("no directory"),
    "inner": _as_file, "loop": lambda at: at.symlink_to(at.name), "linked": _linked,
    "gone": lambda at: at.symlink_to("nowhere/at/all"),
}


@fault(*PLACES)
def place(at: Path, kind: str) -> None:
    PLACES[kind](at)
    check(at)


@fault("x" * 4096, "a/" * 2000 + "b", "/proc/none", "/dev/null/x", "\udcff\udcfe", "new\nline")
def name(at: Path, path: str) -> None:
    at.mkdir()
    os.chdir(at)
    check(Path(path))


@fault()
def no_home(at: Path) -> None:
    import jitla
    from jitla.config import cache_directory
    at.mkdir()
    os.chdir(at)
    os.environ.update(HOME="", XDG_CACHE_HOME="relative")
    jitla.configure(cache_dir="")
    os.environ["HOME"] = "relative"
    assert cache_directory(jitla.config.current()) == os.devnull
    f = jitla.jit(compile="sync")(check.__globals__["algorithm"])
    same(f(X, Y))
    assert list(at.iterdir()) == []


@fault(0o777, 0o770, 0o722, 0o1777)
def writable(at: Path, mode: int) -> None:
    fill(at)
    (at / "objects").chmod(mode)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        check(at)
    assert [w.category.__name__ for w in told] == ["CacheWarning"]


@fault()
def foreign(at: Path) -> None:
    fill(at)
    if os.geteuid() == 0:
        os.chown(at / "objects", 12345, 12345)
    else:
        os.geteuid = lambda: 12345  # type: ignore[assignment]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        check(at)
    assert len(told) == 1


@fault()
def removed_meanwhile(at: Path) -> None:
    f = decorated(at)
    same(f(X, Y))
    shutil.rmtree(at)
    same(f(X[::2], Y[::2], 3), f.__wrapped__(X[::2], Y[::2], 3))


@fault()
def replaced_meanwhile(at: Path) -> None:
    f = decorated(at)
    same(f(X, Y))
    shutil.rmtree(at / "objects")
    (at / "objects").write_text("now a file")
    same(f(X[::2], Y[::2], 3), f.__wrapped__(X[::2], Y[::2], 3))


# ------------------------------------------------------------------------------ calls that fail

CALLS = ("open", "mkdir", "rename", "fstat", "unlink", "fdopen", "utime", "close")
ERRORS = ("ENOSPC", "EIO", "EROFS", "EACCES", "EDQUOT", "EMFILE", "ESTALE")


class Failing:
    """Lets calls of functions of `os` on the cache fail: the ones whose numbers `when` picks."""

    def __init__(self, names: tuple[str, ...], error: int, when: Callable[[int], bool]) -> None:
        self.count = 0
        for n in names:
            setattr(os, n, self.wrapped(getattr(os, n), error, when))

    def wrapped(
        self, call: Callable[..., Any], error: int, when: Callable[[int], bool]
    ) -> Callable[..., Any]:
        def failing(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if when(self.count):
                raise OSError(error, os.strerror(error))
            return call(*args, **kwargs)
        os.supports_dir_fd.add(failing)
        return failing


@fault(*[(call, ERRORS[k % len(ERRORS)], filled) for k, call in enumerate(CALLS)
         for filled in ("empty", "filled")])
def always(at: Path, call: str, error: str, state: str) -> None:
    if state == "filled":
        fill(at)
    else:
        at.mkdir()
    Failing((call,), getattr(errno, error), lambda n: True)
    check(at)


@fault(*[(error, n) for error in ("ENOSPC", "EIO") for n in (1, 2, 3, 4, 5, 6, 8, 10)])
def once(at: Path, error: str, number: int) -> None:
    """The n-th call of any of these functions fails: the others are as ever, and nothing is left behind."""
    at.mkdir()
    Failing(("open", "mkdir", "rename", "fstat", "fdopen"), getattr(errno, error), lambda n: n == number)
    check(at)
    tidy(at)
    assert len(files(at)) > 2


@fault(0, 100, 5000)
def full(at: Path, size: int) -> None:
    """No file may be longer: writing fails in the middle."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    check(at)
    tidy(at)
    assert all(p.stat().st_size <= size for p in files(at))


@fault(0, 1, 2)
def no_handles(at: Path, more: int) -> None:
    import jitla
    f = decorated(at)
    jitla.config.describe()
    handle = os.open(os.devnull, os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (handle + more, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    same(f(X, Y))


# ------------------------------------------------------------------------------ endings in the middle


@fault(*range(1, 13))
def killed(at: Path, number: int) -> None:
    """A process is killed at its n-th call while it writes; others read what it left."""

    def die() -> None:
        def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
            def dying(*args: Any, **kwargs: Any) -> Any:
                calls.append(1)
                if len(calls) == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*args, **kwargs)
            os.supports_dir_fd.add(dying)
            return dying
        calls: list[int] = []
        for n in ("open", "mkdir", "fdopen", "rename", "close"):
            setattr(os, n, wrapped(getattr(os, n)))
        check(at)

    assert ended(in_child(die), SECONDS) == "ended with -9"
    check(at)
    left = [p for p in files(at) if p.name.startswith(".new")]
    assert len(left) <= 1


@fault(8, 32)
def one_key(at: Path, processes: int) -> None:
    """Many processes compile the same at once: one entry for each piece of code."""
    gate, go = os.pipe()

    def work() -> None:
        os.close(go)
        os.read(gate, 1)
        check(at)

    children = [in_child(work) for _ in range(processes)]
    os.close(go)
    assert {ended(child, SECONDS) for child in children} == {""}
    tidy(at)
    before = {p: p.read_bytes() for p in files(at)}
    check(at)
    assert {p: p.read_bytes() for p in files(at)} == before


@fault()
def cleared_meanwhile(at: Path) -> None:
    """Others fill and clear the cache, which is far too small, all the time."""

    def clear() -> None:
        store = DiskCache(str(at), 100_000)
        for k in range(300):
            store.put(f"key{k}", "maker", bytes(5000))
            if k % 10 == 0:
                store.clear()

    children = [in_child(clear), *[in_child(lambda: check(at)) for _ in range(8)]]
    assert {ended(child, SECONDS) for child in children} == {""}
    check(at)
