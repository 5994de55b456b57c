"""Commands that run other people's programs, and that say what jitla finds here.

Knows: modules, scripts, files of arrays, the public interface. Must not know: rooms.
Receives the arguments of a command; returns its exit status. What is reported goes to the error channel,
so that what a script prints stays alone.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import inspect
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

import numpy as np

from jitla.api import coverage, explain, jit, tune
from jitla.config import cache_directory, current
from jitla.decorating import decorate, functions
from jitla.disk import Disk, Unsafe
from jitla.errors import ConfigError, JitlaError
from jitla.gate import GATE
from jitla.predictions import bytes_text, duration
from jitla.replay import Replay
from jitla.trials import SIZES, trials

__all__ = ["bench_command", "cache_command", "explain_command", "info_command", "run_command", "tune_command"]

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
    yield "processor", GATE.host()
    sizes = GATE.room("calibration").cache_sizes()
    yield "caches", f"{bytes_text(sizes.near)} for each core, {bytes_text(sizes.shared)} shared"
    yield "memory", bytes_text(GATE.room("runtime").memory())
    yield "files", cache_directory(current())
    found = GATE.measured(current())
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
    kept = Disk(cache_directory(options), options.disk_cache_limit)
    print(kept.directory + ("" if options.disk_cache else " (not in use: disk_cache is off)"))
    try:
        found = kept.usage() if what == "info" else kept.clear()
    except (OSError, Unsafe) as wrong:
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
