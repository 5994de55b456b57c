"""Compilation of loops: translates a function, sends the text to the compiling process, links the result."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from types import FunctionType
from typing import Any, NamedTuple

from jitla.concurrency import short_switch_interval
from jitla.events import log
from jitla.loopjit.function import CodeCacheAccess, cached_object
from jitla.loopjit.native_entry import (
    CLOCK,
    NAME,
    CompiledKernel,
    ExpectedName,
    NativeEntry,
    native_entry_text,
)
from jitla.loopjit.policy import MISSING, Entry, Variant
from jitla.loopjit.slice_loops import laned
from jitla.loopjit.translator import kernel
from jitla.loopjit.types import LARGE, Given, Refused
from jitla.process.resources import start_thread

__all__ = ["Foreman", "CompilerTools", "foresee", "make"]


# Seconds without work after which thread and process end.
IDLE = 20.0
# Processes that may die.
MOST_LOST = 3


class Unavailable(Exception):
    """No process can be had, or it did not answer."""


class Foreman:
    """Does tasks one after the other, in a thread that lives as long as there are any."""

    def __init__(self, program: str) -> None:
        # it is given no folder of this package to import from: it needs none of it
        self.program = program
        self._command = [sys.executable, "-P", program]
        self._tasks: SimpleQueue[Callable[[], None]]
        self._lock: threading.Lock
        self._thread: threading.Thread | None
        self._process: subprocess.Popen[bytes] | None
        self.lost = 0
        os.register_at_fork(after_in_child=self._begin)
        self._begin()

    def _begin(self) -> None:
        """Begin without thread and process: a child has neither."""
        self._lock = threading.Lock()
        self._tasks = SimpleQueue()
        self._thread = None
        self._process = None

    @property
    def ready(self) -> bool:
        """Whether a process is there already."""
        return self._process is not None

    def submit(self, task: Callable[[], None]) -> None:
        """Let the thread do `task`, soon."""
        with self._lock:
            self._tasks.put(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="jitla-loops", daemon=True)
                try:
                    start_thread(self._thread)
                except RuntimeError:  # no more threads: the task waits for the next one
                    self._thread = None

    def _work(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=IDLE)
            except Empty:
                with self._lock:
                    if self._tasks.empty():
                        self._thread = None
                        self._dismiss()
                        return
                continue
            try:
                with short_switch_interval():
                    task()
            except Exception as error:
                log.debug("a loop was not compiled: %r", error)
            del task

    def ask(self, text: str, pointers: tuple[str, ...]) -> tuple[str, bytes]:
        """Return the name and the object of what is made of `text`."""
        if self.lost >= MOST_LOST or not sys.executable:
            raise Unavailable("no process compiles loops")
        try:
            process = self._hired()
            assert process.stdin is not None and process.stdout is not None
            asked = json.dumps({"text": text, "pointers": pointers})
            process.stdin.write(asked.encode() + b"\n")
            process.stdin.flush()
            reply: dict[str, Any] = json.loads(process.stdout.readline())
            if "error" in reply:
                raise Unavailable(f"Numba does not compile it: {reply['error']}")
            data = process.stdout.read(reply["bytes"])
        except (OSError, ValueError) as error:
            self.lost += 1
            self._dismiss()
            raise Unavailable(f"the process that compiles loops has ended: {error}") from error
        return reply["name"], data

    def _hired(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL)
            atexit.register(self._process.kill)
        return self._process

    def _dismiss(self) -> None:
        """Let the process end: it does when nothing can come in any more."""
        process, self._process = self._process, None
        if process is not None:
            atexit.unregister(process.kill)
        if process is not None and process.stdin is not None:
            try:
                process.stdin.close()
                process.wait(timeout=5.0)
            except (OSError, subprocess.TimeoutExpired):
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


class CompilerTools(NamedTuple):
    """The compiling process, the linker of objects, the loader of IR, and the cache of machine code.

    `unobserved_check` returns the function that tests whether calls are unobserved.
    """

    foreman: Foreman
    link: Callable[[str, bytes], tuple[Any, int]]
    load: Callable[[str, str], tuple[Any, int]]
    code_cache: CodeCacheAccess
    unobserved_check: Callable[[], Callable[[], bool]]


def make(entry: Entry, variant: Variant, tools: CompilerTools) -> None:
    """Have a nest translated and compiled for values of a kind, or leave it to Python."""
    try:
        _translate(entry, variant, tools)
    except Refused as refused:
        variant.refuse(refused.reason, refused.line or entry.nest.line, refused.element)
    except Unavailable as error:
        variant.refuse(str(error))
    except Exception as error:
        variant.refuse(f"{type(error).__name__}: {error}")
    finally:
        entry.look()


def foresee(entries: Iterable[Entry]) -> None:
    """Find out of what Python has run so far whether it can be compiled."""
    for entry in entries:
        for variant in [each for each in entry.variants.values() if each.state == "cold" and each.given]:
            try:
                _read(entry, variant)
            except Refused as refused:
                variant.refuse(refused.reason, refused.line or entry.nest.line, refused.element)


def _read(entry: Entry, variant: Variant) -> tuple[dict[str, Given], Any]:
    """Return what a nest is given, and its translation."""
    given = dict(zip((*entry.names, *entry.outside), variant.given, strict=True))
    given = {name: what for name, what in given.items()
             if name not in entry.outside or not isinstance(what, str)}
    variant.assumed.clear()
    variant.helpers.clear()
    translate = kernel if entry.nest.lanes is None else laned
    made = translate(entry.nest, given, lambda *asked: _resolve(entry, variant, *asked))
    variant.kinds = ", ".join(f"{name} {_shown(what)}" for name, what in given.items())
    return given, made


def _translate(entry: Entry, variant: Variant, tools: CompilerTools) -> None:
    given, made = _read(entry, variant)
    name, data = cached_object(made.text, made.pointers, tools.foreman.ask, tools.foreman.program,
                               tools.code_cache)
    library, address = tools.link(name, data)
    variant.code = CompiledKernel(made, entry.nest.writes, library, address)
    _build(entry, variant, variant.code, given, tools)
    variant.state = "tried"


def _build(entry: Entry, variant: Variant, code: CompiledKernel, given: dict[str, Given],
           tools: CompilerTools) -> None:
    """Build the native entry of a nest, if machine code can check the kinds of its values."""
    examples = {name: int if type(each) in (bool, int) else each
                for name, each in zip((*entry.names, *entry.outside), variant.key, strict=True)}
    large = any(what == LARGE for what in variant.given)
    if large or CLOCK is None or len(given) != len(examples) or sys.implementation.name != "cpython":
        return
    found = [ExpectedName(space, name, None if value is MISSING else value)
             for space, name, value in variant.assumed]
    is_unobserved = tools.unobserved_check()
    undisturbed = (lambda: is_unobserved() and variant.unchanged()) if variant.helpers else is_unobserved
    text, objects = native_entry_text(code.kernel, entry.names, entry.outside, given, examples,
                                      list({(id(each.space), each.name): each for each in found}.values()),
                                      entry.nest.live, undisturbed, entry.space)
    variant.native_entry = NativeEntry(code, objects, tools.load(text, NAME),
                                       lambda made: entry.left(variant, made))


def _resolve(entry: Entry, variant: Variant, name: str, inside: FunctionType | None = None) -> Any:
    """Return what a name outside of the function is, or of one `inside` it, and remember that it was."""
    first, *rest = name.split(".")
    known: Any = inside  # not every checker knows that functions have builtins
    space = entry.space if inside is None else known.__globals__
    if first not in space:
        variant.assumed.append((space, first, MISSING))
        space = entry.builtin if inside is None else known.__builtins__
    found = space.get(first, MISSING)
    variant.assumed.append((space, first, found))
    for part in rest:
        if not isinstance(found, type(sys)):
            raise Refused(f"{name} is no name in a module", element=False)
        variant.assumed.append((vars(found), part, vars(found).get(part, MISSING)))
        found = vars(found).get(part, MISSING)
    if found is MISSING:
        raise Refused(f"{name} is not defined", element=False)
    if type(found) is not FunctionType or entry.helpers is None:
        return found
    made = entry.helpers.of(found)
    if isinstance(made, str):
        return found
    variant.helpers[found] = made.code
    return made


def _shown(what: Any) -> str:
    kind = getattr(what, "kind", what)
    return f"{kind}[{', '.join(':' * what.ndim)}]" if hasattr(what, "ndim") else str(kind)
