"""Commands of `python -m jitla` and of the notebook extension."""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import inspect
import os
import platform
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile
from threading import Condition, Thread
from time import perf_counter
from types import CodeType, ModuleType, TracebackType
from typing import Any, NamedTuple

import numpy as np

from jitla.api import coverage, explain, jit, tune
from jitla.cli.notebook import decorate, functions
from jitla.config import cache_directory, current
from jitla.engine import ENGINE
from jitla.errors import ConfigError, JitlaError
from jitla.explanations.records import bytes_text, duration
from jitla.runtime.disk_cache import (
    DiskCache,
    UnsafeDirectory,
)

__all__ = [
    "Replay", "SIZES", "Trial", "bench_command", "cache_command", "explain_command", "info_command",
    "run_command", "trials", "tune_command",
]


SIZES = 100_000
COLUMNS = 20
Array = np.ndarray[Any, Any]


class Trial(NamedTuple):
    """What a function took: plain and decorated, medians of calls in turn, and decorated at first."""

    name: str
    plain: float
    fast: float
    first: float


def _standardise(X: Array, y: Array, w: Array) -> Array:
    made: Array = (X - X.mean(axis=0)) / X.std(axis=0)
    return made


def _logistic(X: Array, y: Array, w: Array) -> Array:
    p = 1.0 / (1.0 + np.exp(-(X @ w)))
    made: Array = X.T @ (p - y)
    return made


def _softmax(X: Array, y: Array, w: Array) -> Array:
    e = np.exp(X - X.max(axis=1, keepdims=True))
    made: Array = e / e.sum(axis=1, keepdims=True)
    return made


def _hinge(X: Array, y: Array, w: Array) -> tuple[Any, Array]:
    out = np.maximum(1.0 - y * (X @ w), 0.0)
    return 0.5 * (out * out).sum(), -(X.T @ (out * y))


def _distances(X: Array, y: Array, w: Array) -> Array:
    made: Array = np.sqrt(((X - w) ** 2).sum(axis=1))
    return made


def _polynomial(X: Array, y: Array, w: Array) -> Array:
    return 1.0 + y * (2.0 + y * (3.0 + y * (4.0 + y * 5.0)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "standardise": _standardise, "logistic": _logistic, "softmax": _softmax, "hinge": _hinge,
    "distances": _distances, "polynomial": _polynomial}


def trials(rows: int, seconds: float) -> Iterator[Trial]:
    """Yield the time of each function on matrices with `rows` rows, for about `seconds` seconds."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(rows, COLUMNS))
    args = X, (X[:, 0] > 0) * 1.0, 0.1 * rng.normal(size=COLUMNS)
    for name, function in FUNCTIONS.items():
        fast = jit(function, compile="sync")
        first = _timed(fast, args)
        pairs: list[tuple[float, float]] = []
        end = perf_counter() + seconds
        while not pairs or perf_counter() < end:
            pairs.append((_timed(function, args), _timed(fast, args)))
        plain, quick = (median(column) for column in zip(*pairs, strict=True))
        yield Trial(name, plain, quick, first)


def _timed(function: Callable[..., Any], args: tuple[Any, ...]) -> float:
    start = perf_counter()
    function(*args)
    return perf_counter() - start


CHUNK = 1 << 16


class Replay:
    """Standard input that is read more than once: files are wound back, of pipes what was read is kept.

    Nothing is read before a program was handed what came before it. A terminal is left as it is.
    """

    def __init__(self) -> None:
        try:
            kind = os.fstat(0).st_mode
        except OSError:  # there is none
            kind = 0
        self._begin = os.lseek(0, 0, os.SEEK_CUR) if stat.S_ISREG(kind) else None
        self._piped = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)
        self._changed = Condition()
        self._source = -1
        self._kept = -1
        if self._piped:
            with TemporaryFile() as file:
                self._kept = os.dup(file.fileno())
        self._size = self._wanted = 0
        self._ended = False

    @contextmanager
    def once(self) -> Iterator[None]:
        """Let what reads descriptor 0 inside of the ``with`` block find all of the input there."""
        if self._begin is not None:
            os.lseek(0, self._begin, os.SEEK_SET)
        if not self._piped:
            yield
            return
        if self._source < 0:
            self._source = os.dup(0)
            Thread(target=self._take, daemon=True).start()
        before = os.dup(0)
        reading, writing = os.pipe()
        os.dup2(reading, 0)
        os.close(reading)
        Thread(target=self._feed, args=(writing,), daemon=True).start()
        try:
            yield
        finally:
            os.dup2(before, 0)
            os.close(before)

    def _take(self) -> None:
        """Keep what comes, as far as some program has been handed all that came before."""
        while True:
            with self._changed:
                while self._wanted < self._size:
                    self._changed.wait()
            found = os.read(self._source, CHUNK)
            with self._changed:
                os.pwrite(self._kept, found, self._size)
                self._size += len(found)
                self._ended = not found
                self._changed.notify_all()
            if not found:
                return

    def _feed(self, writing: int) -> None:
        """Hand a program what was kept, then what comes, until there is no more or it has ended."""
        at = 0
        try:
            while True:
                with self._changed:
                    self._wanted = max(self._wanted, at)
                    self._changed.notify_all()
                    while at == self._size and not self._ended:
                        self._changed.wait()
                    if at == self._size:
                        return
                found = os.pread(self._kept, CHUNK, at)
                while found:
                    done = os.write(writing, found)
                    found, at = found[done:], at + done
        except BrokenPipeError:  # it has ended, or closed its input
            return
        finally:
            os.close(writing)


PACKAGES = ("numpy", "scipy", "llvmlite", "numba")


def info_command(arguments: list[str]) -> int:
    """Print versions, the processor, threads, where files are kept, and the machine's constants."""
    argparse.ArgumentParser(prog="python -m jitla info").parse_args(arguments)
    for name, value in _facts():
        print(f"{name:12} {value}")
    return 0


def _facts() -> Iterator[tuple[str, str]]:
    yield "jitla", sys.modules["jitla"].__version__
    yield "Python", platform.python_version()
    for name in PACKAGES:
        yield name, importlib.metadata.version(name)
    yield "processor", ENGINE.host()
    sizes = ENGINE.room("tuner.calibration").cache_sizes()
    yield "caches", f"{bytes_text(sizes.near)} for each core, {bytes_text(sizes.shared)} shared"
    yield "memory", bytes_text(ENGINE.room("runtime").memory())
    yield "files", cache_directory(current())
    found = ENGINE.measured(current())
    yield "constants", "measured" if found else "assumed; python -m jitla calibrate measures them"
    for name, value in found.record().items() if found else ():
        yield "", f"{name} = {value}"


def bench_command(arguments: list[str]) -> int:
    """Time a few functions plain and decorated, in turn, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m jitla bench")
    parser.add_argument("--rows", type=_count, default=SIZES, help="of the matrices; default %(default)s")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each function; default %(default)s")
    chosen = parser.parse_args(arguments)
    print(f"{'median of pairs':15}  {'NumPy':>9}  {'jitla':>9}  {'ratio':>5}  {'first call':>10}")
    for found in trials(chosen.rows, chosen.seconds):
        print(f"{found.name:15}  {duration(found.plain):>9}  {duration(found.fast):>9}  "
              f"{found.fast / found.plain:5.2f}  {duration(found.first):>10}")
    return 0


def _count(text: str) -> int:
    """Read a number of rows."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rows")
    return int(text)


def cache_command(what: str) -> int:
    """Describe or empty the disk cache."""
    options = current()
    kept = DiskCache(cache_directory(options), options.disk_cache_limit)
    print(kept.directory + ("" if options.disk_cache else " (not in use: disk_cache is off)"))
    try:
        found = kept.usage() if what == "info" else kept.clear()
    except (OSError, UnsafeDirectory) as wrong:
        print(f"not in use: {wrong}")
        return 1
    limit = f" of {kept.limit / 1e6:.0f} MB" if what == "info" and kept.limit else ""
    print(f"{'kept' if what == 'info' else 'removed'}: {found.files} pieces of machine code and plans, "
          f"{found.nbytes / 1e6:.1f} MB{limit}")
    return 0


def explain_command(arguments: list[str]) -> int:
    """Call a function with the arrays of a file, and print or save what became of it."""
    parser = argparse.ArgumentParser(prog="python -m jitla explain")
    parser.add_argument("function", help="module:function")
    parser.add_argument("--data", help="a .npz file; its arrays are passed by name, arr_0, arr_1 in order; "
                        "or a .npy file with one; without, a function is called that needs no arguments")
    parser.add_argument("--level", default="plan")
    parser.add_argument("--html", help="write a page instead of printing")
    chosen = parser.parse_args(arguments)
    sys.path.insert(0, "")
    _, function = _found(chosen.function)
    args, kwargs = _arrays(chosen.data) if chosen.data else ((), {})
    fast = function if hasattr(function, "__jitla_state__") else jit(function, compile="sync")
    if not chosen.data and not _needed(function):
        fast()
    found = explain(fast, *args, level=chosen.level, **kwargs)
    if not chosen.html:
        print(found, end="")
        return 0
    try:
        found.save(chosen.html)
    except OSError as wrong:
        raise ConfigError(f"nothing can be written to {chosen.html}: {wrong.strerror}") from wrong
    return 0


def _needed(function: Any) -> list[str]:
    """Return the names of parameters that a call has to give."""
    return [p.name for p in inspect.signature(function).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def tune_command(arguments: list[str]) -> int:
    """Search faster schedules for a function called with the arrays of a file, and print what was found."""
    parser = argparse.ArgumentParser(prog="jitla tune")
    parser.add_argument("function", help="module:function")
    parser.add_argument("--data", help="a .npz file; its arrays are passed by name, arr_0, arr_1 in order")
    parser.add_argument("--trials", type=int, default=64, help="for each kernel; default %(default)s")
    parser.add_argument("--seconds", type=float, default=30.0, help="altogether; default %(default)s")
    parser.add_argument("--learner", choices=("smooth", "trees", "lightgbm"), default="smooth",
                        help="what scores schedules; default %(default)s")
    chosen = parser.parse_args(arguments)
    sys.path.insert(0, "")
    args, kwargs = _arrays(chosen.data) if chosen.data else ((), {})
    found = tune(_found(chosen.function)[1], *args, trials=chosen.trials, seconds=chosen.seconds,
                 learner=chosen.learner, **kwargs)
    print(found, end="")
    return 0


def _arrays(file: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and named arguments."""
    try:
        loaded = np.load(file, allow_pickle=False)
        named = dict(loaded) if hasattr(loaded, "files") else {"arr_0": loaded}
    except (OSError, ValueError) as wrong:
        raise ConfigError(f"no arrays can be read from {file}: {wrong}") from wrong
    ordered = [named.pop(f"arr_{at}") for at in range(len(named)) if f"arr_{at}" in named]
    return tuple(ordered), named


def _found(path: str) -> tuple[Any, Any]:
    """Return the function that ``module:function`` or ``module:Class.method`` names, and what it is of."""
    module, colon, name = path.partition(":")
    try:
        holder: Any = import_module(module) if colon else None
        *outer, last = name.split(".")
        for part in outer:
            holder = getattr(holder, part, None)
    except (ImportError, ValueError, SyntaxError) as wrong:
        raise ConfigError(f"{path} is no function: {wrong}") from wrong
    found = getattr(holder, last, None)
    if not callable(found):
        raise ConfigError(f"{path} is no function; write module:function")
    return holder, found


def run_command(arguments: list[str]) -> int:
    """Run a script with functions decorated, and before as it is, to compare."""
    parser = argparse.ArgumentParser(prog="python -m jitla run")
    parser.add_argument("script")
    parser.add_argument("--jit", action="append", default=[], metavar="[MODULE:]FUNCTION",
                        help="decorate this function; may be given more than once")
    parser.add_argument("--jit-all", action="store_true", help="decorate all functions of the script")
    parser.add_argument("--once", action="store_true",
                        help="do not run the script plain before; for those that ask at a terminal, or write")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="arguments of the script")
    chosen = parser.parse_args(arguments)
    if not chosen.jit and not chosen.jit_all:
        raise ConfigError("nothing to decorate: put --jit FUNCTION, --jit MODULE:FUNCTION or --jit-all "
                          "before the script")
    if not Path(chosen.script).is_file():
        raise ConfigError(f"there is no file {chosen.script}")
    plain, given = 0.0, Replay()
    if not chosen.once:
        start = time.perf_counter()
        with given.once():
            done = subprocess.run([sys.executable, chosen.script, *chosen.rest], stdout=subprocess.DEVNULL,
                                  check=False)
        plain = time.perf_counter() - start
        if done.returncode:
            raise ConfigError(f"{chosen.script} ends with status {done.returncode} without jitla, too")
    start = time.perf_counter()
    try:
        with given.once():
            return _run(chosen.script, chosen.rest, _named(chosen.jit), chosen.jit_all)
    finally:  # a script may end by `sys.exit`
        seconds = time.perf_counter() - start
        against = f", {duration(plain)} without jitla, start of Python included" if plain else ""
        print(f"{chosen.script} took {duration(seconds)}{against}\n{coverage()}", end="", file=sys.stderr)


def _named(chosen: list[str]) -> set[str]:
    """Decorate functions of modules, in place; return the names of those of the script."""
    sys.path.insert(0, "")
    for path in (p for p in chosen if ":" in p):
        holder, found = _found(path)
        name = path.rpartition(":")[2].rpartition(".")[2]
        own = vars(holder).get(name, found)  # as it is in the class: static methods stay such
        setattr(holder, name, jit(own))
    return {path for path in chosen if ":" not in path}


def _run(script: str, rest: list[str], names: set[str], every: bool) -> int:
    """Run a script with functions decorated, as ``python script`` does; errors are shown as there."""
    file = os.path.abspath(script)
    try:
        code = _prepared(script, file, names, every)
        _execute(code, script, file, rest)
    except (SystemExit, KeyboardInterrupt, JitlaError):
        raise
    except BaseException as error:
        error.__traceback__ = _own(error.__traceback__, file)
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _own(found: TracebackType | None, file: str) -> TracebackType | None:
    """Return a traceback from the first frame of the script on; none if it was not reached."""
    while found is not None and found.tb_frame.f_code.co_filename != file:
        found = found.tb_next
    return found


def _prepared(script: str, file: str, names: set[str], every: bool) -> CodeType:
    """Return the code of a script with functions decorated."""
    tree = ast.parse(Path(file).read_bytes(), file)
    unknown = sorted(names - set(functions(tree)))
    if unknown:
        raise ConfigError(f"{script} has no function {', '.join(unknown)}; write MODULE:FUNCTION for others")
    return compile(decorate(tree, None if every else names), file, "exec")


def _execute(code: CodeType, script: str, file: str, rest: list[str]) -> None:
    """Run the code of a script as ``python script`` does."""
    main = ModuleType("__main__")
    main.__file__ = file
    sys.modules["__main__"], sys.argv = main, [script, *rest]
    sys.path[0] = os.path.dirname(file)
    exec(code, main.__dict__)
