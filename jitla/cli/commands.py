"""Subcommands of `python -m jitla`: info, bench, cache, explain, tune and run."""

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

from jitla import packages
from jitla.api import coverage, explain, jit, tune
from jitla.cli.notebook import decorate_functions, top_level_functions
from jitla.config import cache_directory, current
from jitla.engine import ENGINE
from jitla.errors import ConfigError, JitlaError
from jitla.explanations.records import bytes_text, duration
from jitla.runtime.disk_cache import (
    DiskCache,
    UnsafeDirectory,
)

__all__ = [
    "DEFAULT_ROWS", "FunctionTiming", "ReplayableInput", "bench_command", "cache_command",
    "explain_command", "info_command", "run_command", "time_functions", "tune_command",
]


DEFAULT_ROWS = 100_000
COLUMNS = 20
Array = np.ndarray[Any, Any]


class FunctionTiming(NamedTuple):
    """Seconds of a function: medians of alternating plain and decorated calls, and its first call."""

    name: str
    plain: float
    fast: float
    first: float


def _standardise(X: Array, y: Array, w: Array) -> Array:
    result: Array = (X - X.mean(axis=0)) / X.std(axis=0)
    return result


def _logistic(X: Array, y: Array, w: Array) -> Array:
    p = 1.0 / (1.0 + np.exp(-(X @ w)))
    result: Array = X.T @ (p - y)
    return result


def _softmax(X: Array, y: Array, w: Array) -> Array:
    e = np.exp(X - X.max(axis=1, keepdims=True))
    result: Array = e / e.sum(axis=1, keepdims=True)
    return result


def _hinge(X: Array, y: Array, w: Array) -> tuple[Any, Array]:
    out = np.maximum(1.0 - y * (X @ w), 0.0)
    return 0.5 * (out * out).sum(), -(X.T @ (out * y))


def _distances(X: Array, y: Array, w: Array) -> Array:
    result: Array = np.sqrt(((X - w) ** 2).sum(axis=1))
    return result


def _polynomial(X: Array, y: Array, w: Array) -> Array:
    return 1.0 + y * (2.0 + y * (3.0 + y * (4.0 + y * 5.0)))


BENCH_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "standardise": _standardise, "logistic": _logistic, "softmax": _softmax, "hinge": _hinge,
    "distances": _distances, "polynomial": _polynomial}


def time_functions(rows: int, seconds: float) -> Iterator[FunctionTiming]:
    """Yield the timing of each benchmark function on `rows` rows, measured for about `seconds` seconds."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(rows, COLUMNS))
    args = X, (X[:, 0] > 0) * 1.0, 0.1 * rng.normal(size=COLUMNS)
    for name, function in BENCH_FUNCTIONS.items():
        fast = jit(function, compile="sync")
        first = _timed(fast, args)
        pairs: list[tuple[float, float]] = []
        end = perf_counter() + seconds
        while not pairs or perf_counter() < end:
            pairs.append((_timed(function, args), _timed(fast, args)))
        plain, jitted = (median(column) for column in zip(*pairs, strict=True))
        yield FunctionTiming(name, plain, jitted, first)


def _timed(function: Callable[..., Any], args: tuple[Any, ...]) -> float:
    """Return the seconds of one call."""
    start = perf_counter()
    function(*args)
    return perf_counter() - start


CHUNK_BYTES = 1 << 16


class ReplayableInput:
    """Standard input that several programs read from its beginning.

    Files are rewound; the contents of pipes and sockets are copied to a temporary file, never further than a
    program has read. Terminals are not replayed.
    """

    def __init__(self) -> None:
        try:
            kind = os.fstat(0).st_mode
        except OSError:  # standard input is closed
            kind = 0
        self._file_start = os.lseek(0, 0, os.SEEK_CUR) if stat.S_ISREG(kind) else None
        self._piped = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)
        self._condition = Condition()
        self._source = -1
        self._copy = -1
        if self._piped:
            with TemporaryFile() as file:
                self._copy = os.dup(file.fileno())
        self._size = self._requested = 0
        self._ended = False

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Provide the whole input on descriptor 0 inside of the ``with`` block."""
        if self._file_start is not None:
            os.lseek(0, self._file_start, os.SEEK_SET)
        if not self._piped:
            yield
            return
        if self._source < 0:
            self._source = os.dup(0)
            Thread(target=self._copy_source, daemon=True).start()
        before = os.dup(0)
        reading, writing = os.pipe()
        os.dup2(reading, 0)
        os.close(reading)
        Thread(target=self._feed_program, args=(writing,), daemon=True).start()
        try:
            yield
        finally:
            os.dup2(before, 0)
            os.close(before)

    def _copy_source(self) -> None:
        """Copy the source to the temporary file whenever a program has read all of the copy."""
        while True:
            with self._condition:
                while self._requested < self._size:
                    self._condition.wait()
            chunk = os.read(self._source, CHUNK_BYTES)
            with self._condition:
                os.pwrite(self._copy, chunk, self._size)
                self._size += len(chunk)
                self._ended = not chunk
                self._condition.notify_all()
            if not chunk:
                return

    def _feed_program(self, writing: int) -> None:
        """Write the copy, then new input, to a program's pipe until the end of either."""
        offset = 0
        try:
            while True:
                with self._condition:
                    self._requested = max(self._requested, offset)
                    self._condition.notify_all()
                    while offset == self._size and not self._ended:
                        self._condition.wait()
                    if offset == self._size:
                        return
                chunk = os.pread(self._copy, CHUNK_BYTES, offset)
                while chunk:
                    count = os.write(writing, chunk)
                    chunk, offset = chunk[count:], offset + count
        except BrokenPipeError:  # the program has ended, or closed its input
            return
        finally:
            os.close(writing)


REPORTED_PACKAGES = ("numpy", "scipy", "llvmlite")


def info_command(arguments: list[str]) -> int:
    """Print versions, processor, caches, memory, the cache directory, and the machine's constants."""
    argparse.ArgumentParser(prog="python -m jitla info").parse_args(arguments)
    for name, value in _system_facts():
        print(f"{name:12} {value}")
    return 0


def _system_facts() -> Iterator[tuple[str, str]]:
    yield "jitla", sys.modules["jitla"].__version__
    yield "Python", platform.python_version()
    for name in REPORTED_PACKAGES:
        yield name, importlib.metadata.version(name)
    yield "processor", ENGINE.host()
    sizes = packages.tuner.calibration.cache_sizes()
    yield "caches", f"{bytes_text(sizes.near)} for each core, {bytes_text(sizes.shared)} shared"
    yield "memory", bytes_text(packages.runtime.memory())
    yield "files", cache_directory(current())
    machine = ENGINE.stored_machine(current())
    yield "constants", "measured" if machine else "assumed; python -m jitla calibrate measures them"
    for name, value in machine.record().items() if machine else ():
        yield "", f"{name} = {value}"


def bench_command(arguments: list[str]) -> int:
    """Time a few functions, plain and decorated alternately, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m jitla bench")
    parser.add_argument("--rows", type=_row_count, default=DEFAULT_ROWS,
                        help="rows of the matrices; default %(default)s")
    parser.add_argument("--seconds", type=float, default=1.0,
                        help="time for each function; default %(default)s")
    options = parser.parse_args(arguments)
    print(f"{'median of pairs':15}  {'NumPy':>9}  {'jitla':>9}  {'ratio':>5}  {'first call':>10}")
    for timing in time_functions(options.rows, options.seconds):
        print(f"{timing.name:15}  {duration(timing.plain):>9}  {duration(timing.fast):>9}  "
              f"{timing.fast / timing.plain:5.2f}  {duration(timing.first):>10}")
    return 0


def _row_count(text: str) -> int:
    """Parse a number of rows."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows")
    return int(text)


def cache_command(what: str) -> int:
    """Print the usage of the disk cache, or empty it."""
    options = current()
    cache = DiskCache(cache_directory(options), options.disk_cache_limit)
    print(cache.directory + ("" if options.disk_cache else " (not in use: disk_cache is off)"))
    try:
        usage = cache.usage() if what == "info" else cache.clear()
    except (OSError, UnsafeDirectory) as error:
        print(f"not in use: {error}")
        return 1
    limit = f" of {cache.limit / 1e6:.0f} MB" if what == "info" and cache.limit else ""
    print(f"{'cached' if what == 'info' else 'removed'}: {usage.files} files of machine code and plans, "
          f"{usage.nbytes / 1e6:.1f} MB{limit}")
    return 0


def explain_command(arguments: list[str]) -> int:
    """Call a function with the arrays of a file, and print or save its explanation."""
    parser = argparse.ArgumentParser(prog="python -m jitla explain")
    parser.add_argument("function", help="module:function")
    parser.add_argument("--data", help="a .npz file; its arrays are passed by name, arr_0, arr_1 in order; "
                        "or a .npy file with one; without it, the function is called without arguments")
    parser.add_argument("--level", default="plan")
    parser.add_argument("--html", help="write an HTML page instead of printing")
    options = parser.parse_args(arguments)
    sys.path.insert(0, "")
    _, function = _resolve_function(options.function)
    args, kwargs = _arrays(options.data) if options.data else ((), {})
    fast = function if hasattr(function, "__jitla_state__") else jit(function, compile="sync")
    if not options.data and not _required_parameters(function):
        fast()
    explanation = explain(fast, *args, level=options.level, **kwargs)
    if not options.html:
        print(explanation, end="")
        return 0
    try:
        explanation.save(options.html)
    except OSError as error:
        raise ConfigError(f"cannot write {options.html}: {error.strerror}") from error
    return 0


def _required_parameters(function: Any) -> list[str]:
    """Return the names of parameters without default values."""
    return [p.name for p in inspect.signature(function).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def tune_command(arguments: list[str]) -> int:
    """Search faster schedules for a function called with the arrays of a file, and print the report."""
    parser = argparse.ArgumentParser(prog="jitla tune")
    parser.add_argument("function", help="module:function")
    parser.add_argument("--data", help="a .npz file; its arrays are passed by name, arr_0, arr_1 in order")
    parser.add_argument("--trials", type=int, default=64,
                        help="schedules measured for each kernel; default %(default)s")
    parser.add_argument("--seconds", type=float, default=30.0, help="total time; default %(default)s")
    parser.add_argument("--learner", choices=("smooth", "trees", "lightgbm"), default="smooth",
                        help="model that scores schedules; default %(default)s")
    options = parser.parse_args(arguments)
    sys.path.insert(0, "")
    args, kwargs = _arrays(options.data) if options.data else ((), {})
    _, function = _resolve_function(options.function)
    report = tune(function, *args, trials=options.trials, seconds=options.seconds,
                  learner=options.learner, **kwargs)
    print(report, end="")
    return 0


def _arrays(file: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arrays of a file as positional and named arguments."""
    try:
        loaded = np.load(file, allow_pickle=False)
        named = dict(loaded) if hasattr(loaded, "files") else {"arr_0": loaded}
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read arrays from {file}: {error}") from error
    ordered = [named.pop(f"arr_{index}") for index in range(len(named)) if f"arr_{index}" in named]
    return tuple(ordered), named


def _resolve_function(path: str) -> tuple[Any, Any]:
    """Return the module or class and the function of ``module:function`` or ``module:Class.method``."""
    module, colon, name = path.partition(":")
    try:
        holder: Any = import_module(module) if colon else None
        *outer, last = name.split(".")
        for attribute in outer:
            holder = getattr(holder, attribute, None)
    except (ImportError, ValueError, SyntaxError) as error:
        raise ConfigError(f"{path} is not a function: {error}") from error
    function = getattr(holder, last, None)
    if not callable(function):
        raise ConfigError(f"{path} is not a function; write module:function")
    return holder, function


def run_command(arguments: list[str]) -> int:
    """Run a script with functions decorated, after a plain run for comparison."""
    parser = argparse.ArgumentParser(prog="python -m jitla run")
    parser.add_argument("script")
    parser.add_argument("--jit", action="append", default=[], metavar="[MODULE:]FUNCTION",
                        help="decorate this function; can be repeated")
    parser.add_argument("--jit-all", action="store_true", help="decorate all functions of the script")
    parser.add_argument("--once", action="store_true",
                        help="skip the plain run; for interactive scripts and scripts with side effects")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="arguments of the script")
    options = parser.parse_args(arguments)
    if not options.jit and not options.jit_all:
        raise ConfigError("nothing to decorate: put --jit FUNCTION, --jit MODULE:FUNCTION or --jit-all "
                          "before the script")
    if not Path(options.script).is_file():
        raise ConfigError(f"there is no file {options.script}")
    plain, stdin = 0.0, ReplayableInput()
    if not options.once:
        start = time.perf_counter()
        with stdin.replayed():
            completed = subprocess.run(
                [sys.executable, options.script, *options.rest], stdout=subprocess.DEVNULL, check=False)
        plain = time.perf_counter() - start
        if completed.returncode:
            raise ConfigError(f"{options.script} exits with status {completed.returncode} without jitla, too")
    start = time.perf_counter()
    try:
        with stdin.replayed():
            names = _decorate_in_modules(options.jit)
            return _run_script(options.script, options.rest, names, options.jit_all)
    finally:  # the script may call `sys.exit`
        seconds = time.perf_counter() - start
        comparison = f", {duration(plain)} without jitla, including the start of Python" if plain else ""
        print(f"{options.script} took {duration(seconds)}{comparison}\n{coverage()}", end="", file=sys.stderr)


def _decorate_in_modules(paths: list[str]) -> set[str]:
    """Decorate functions of modules in place; return the names of functions of the script."""
    sys.path.insert(0, "")
    for path in (p for p in paths if ":" in p):
        holder, function = _resolve_function(path)
        name = path.rpartition(":")[2].rpartition(".")[2]
        # from the class namespace, so that static methods stay static
        original = vars(holder).get(name, function)
        setattr(holder, name, jit(original))
    return {path for path in paths if ":" not in path}


def _run_script(script: str, arguments: list[str], names: set[str], decorate_all: bool) -> int:
    """Run a script with functions decorated, like ``python script``, and print errors like it."""
    file = os.path.abspath(script)
    try:
        code = _compile_script(script, file, names, decorate_all)
        _execute_as_main(code, script, file, arguments)
    except (SystemExit, KeyboardInterrupt, JitlaError):
        raise
    except BaseException as error:
        error.__traceback__ = _script_traceback(error.__traceback__, file)
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _script_traceback(traceback: TracebackType | None, file: str) -> TracebackType | None:
    """Return the traceback from the first frame of the script; None if there is none."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename != file:
        traceback = traceback.tb_next
    return traceback


def _compile_script(script: str, file: str, names: set[str], decorate_all: bool) -> CodeType:
    """Return the compiled code of a script with functions decorated."""
    tree = ast.parse(Path(file).read_bytes(), file)
    unknown = sorted(names - set(top_level_functions(tree)))
    if unknown:
        raise ConfigError(f"{script} has no function {', '.join(unknown)}; write MODULE:FUNCTION for others")
    return compile(decorate_functions(tree, None if decorate_all else names), file, "exec")


def _execute_as_main(code: CodeType, script: str, file: str, arguments: list[str]) -> None:
    """Run the code of a script as the module ``__main__``."""
    main = ModuleType("__main__")
    main.__file__ = file
    sys.modules["__main__"], sys.argv = main, [script, *arguments]
    sys.path[0] = os.path.dirname(file)
    exec(code, main.__dict__)
