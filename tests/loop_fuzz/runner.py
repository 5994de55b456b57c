"""Runs of random functions by Python and with rewritten loops, and their comparison."""

from __future__ import annotations

import ctypes
import itertools
import linecache
import os
import random
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jitla.codegen import load_loop_entry, load_program
from jitla.codegen.jit import Jit
from jitla.codegen.loop_programs import compile_program, compile_quickly
from jitla.loopir.program import LoopProgram, state_layout
from jitla.loopir.program_interpreter import run_program
from jitla.loopir.program_verifier import verify_program
from jitla.loopjit import loop_sites
from jitla.loopjit.loop_compiler import compile_specialisation
from jitla.loopjit.loop_functions import rewrite_function
from jitla.loopjit.loop_sites import LoopRun
from jitla.loopjit.records import RecordStore
from jitla.loopjit.specialisations import State
from tests.loop_fuzz.arguments import arguments, is_large
from tests.loop_fuzz.forced import plant_exits

VARIANTS = (0, 0, 1, 0)  # arguments of the calls of one program
SECONDS = 10  # of one program
MODES = ("first", "checked", "midway", "parts")
NATIVE_SHARE = 0.3  # of programs that are entered natively, the mode "native"
NATIVE_CALLS = 3  # times as many calls where programs are entered natively
_numbers = itertools.count()
_jit: list[Jit] = []


class Shelf(dict[str, bytes]):
    """Keeps machine code and records in memory."""

    def get(self, key: str, maker: str = "") -> bytes | None:  # type: ignore[override]
        """Return the bytes of a key."""
        return super().get(key)

    def put(self, key: str, maker: str, code: bytes) -> None:
        """Keep bytes."""
        self[key] = code


_shelf = Shelf()


def compile_recorded(site: Any, specialisation: Any, *operands: Any) -> None:
    """Compile a loop, and compile it again as a later process does, from its record."""
    store = RecordStore(lambda: _shelf, lambda: "")
    for _ in range(2):
        compile_specialisation(
            site, specialisation, *operands, lambda program: compile_quickly(program, _jit[0]),
            lambda job: job(), store, lambda *args: load_program(*args, _jit[0]),
            lambda: load_loop_entry(_jit[0]))
        if specialisation.state is not State.COMPILED:
            return
        specialisation.on_checked()
        specialisation.state = State.QUEUED
    specialisation.state = State.COMPILED


class Interpreted:
    """A loop program that the interpreter runs; it has the interface of a compiled program."""

    optimise = None

    def __init__(self, program: LoopProgram) -> None:
        self.program, self.layout = program, state_layout(program)

    def call(self, address: int) -> int:
        """Run the program on the state at an address; return exit and flags as machine code does."""
        state = np.ctypeslib.as_array((ctypes.c_int64 * self.layout.size).from_address(address))
        found = run_program(self.program, state)
        return found.exit | (found.divide + 2 * found.overflow + 4 * found.invalid) << 32


@dataclass
class Plan:
    """How the loops of one program are run."""

    seed: int
    mode: str
    machine: bool
    forced: bool
    errors: str = "warn"
    chooser: random.Random = field(default_factory=random.Random)


@dataclass
class Report:
    """Results of one program: the differences, and numbers for statistics."""

    differences: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    runs: int = 0
    native_runs: int = 0
    failures: list[str] = field(default_factory=list)
    raised: int = 0  # calls that end by an exception


def plan_of(seed: int, machine: float, forced: bool) -> Plan:
    """Return the plan of a seed."""
    chooser = random.Random(f"plan {seed}")
    mode = chooser.choice(MODES)
    return Plan(
        seed,
        "native" if random.Random(f"native {seed}").random() < NATIVE_SHARE else mode,
        chooser.random() < machine or is_large(seed),
        forced,
        chooser.choice(("warn",) * 12 + ("ignore", "raise", "raise", "strict")),
        chooser,
    )


def load(text: str) -> Callable[..., Any]:
    """Return the function ``f`` of a module text, whose lines are found by `linecache`."""
    name = f"<loops {next(_numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "fuzzed"}
    exec(compile(text, name, "exec"), space)
    function: Callable[..., Any] = space["f"]
    return function


# --------------------------------------------------------------------------- runs


def observe(function: Callable[..., Any], args: Sequence[Any], errors: str) -> dict[str, Any]:
    """Return all that a call does: result, exception, warnings, and the arguments as they are then."""
    seen: dict[str, Any] = {}
    modes: dict[str, Any] = (
        {"all": "raise"}
        if errors == "strict"
        else {"divide": errors, "over": errors, "invalid": errors}
    )
    with warnings.catch_warnings(record=True) as caught, np.errstate(**modes):
        warnings.simplefilter("always")
        try:
            seen["result"] = function(*args)
        except _TooLong:
            raise
        except Exception as error:
            frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
            lines = [
                frame.lineno
                for frame in traceback.extract_tb(error.__traceback__)
                if frame.filename == function.__code__.co_filename
            ]
            if f"jitla{os.sep}" in frames[-1]:
                seen["internal"] = "".join(traceback.format_exception(error))
            if isinstance(error, UnboundLocalError):
                lines = []  # CPython reports that of the statement before in code that has become hot
            seen["error"] = type(error).__name__, str(error), lines
    seen["warnings"] = [(w.category.__name__, str(w.message), w.lineno) for w in caught]
    seen["args"] = list(args)
    return seen


class _TooLong(BaseException):
    """A program takes too long."""


def _stop(*_: Any) -> None:
    raise _TooLong


def difference(plain: dict[str, Any], other: dict[str, Any]) -> str:
    """Return what differs between two runs, or nothing."""
    if "internal" in other and plain.get("error") != other["error"]:
        return "INTERNAL " + other["internal"]
    for name in ("error", "warnings"):
        if plain.get(name) != other.get(name):
            return f"{name}: {plain.get(name)} {other.get(name)}"
    for k, (one, two) in enumerate(zip(plain["args"], other["args"], strict=True)):
        if not same(one, two):
            return f"argument {k}: {one!r} {two!r}"
    one, two = plain.get("result"), other.get("result")
    if not same(one, two):
        return f"result: {one!r} {two!r}"
    for k, (x, y) in enumerate(zip(_flat(one), _flat(two), strict=True)):
        if isinstance(x, np.ndarray):
            for x_arg, y_arg in zip(plain["args"], other["args"], strict=True):
                if isinstance(x_arg, np.ndarray) and np.may_share_memory(
                    x, x_arg
                ) != np.may_share_memory(y, y_arg):
                    return f"result {k}: shares memory or not"
            if x.size and x.strides != y.strides:
                return f"result {k}: strides {x.strides} {y.strides}"
            if x.flags.writeable != y.flags.writeable:
                return f"result {k}: writeable {x.flags.writeable} {y.flags.writeable}"
    return ""


def _flat(value: Any) -> list[Any]:
    return [part for item in value for part in _flat(item)] if type(value) is tuple else [value]


def same(a: Any, b: Any) -> bool:
    """Return whether two values have the same types and bits; bits of NaN are not looked at."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and loop_sites._same_memory(a, b)
    if isinstance(a, (np.complexfloating, complex)):
        return same(float(a.real), float(b.real)) and same(float(a.imag), float(b.imag))
    return type(a) is type or bool(a == b or a != a and b != b) and str(a) == str(b)


def run(text: str, plan: Plan) -> Report:
    """Run a program by both ways, and compare them."""
    original, function = load(text), load(text)
    report = compare(
        original, function, [lambda v=v: arguments(plan.seed, v) for v in VARIANTS], plan
    )  # type: ignore[misc]
    for made in (original, function):
        linecache.cache.pop(made.__code__.co_filename, None)
    return report


def compare(
    original: Callable[..., Any],
    function: Callable[..., Any],
    calls: Sequence[Callable[[], Sequence[Any]]],
    plan: Plan,
) -> Report:
    """Call a function, and the same with rewritten loops, with the arguments that `calls` make."""
    report = Report()
    plan.chooser.seed(f"run {plan.seed}")
    by_machine = plan.machine or plan.mode == "native"

    def request(site: Any, specialisation: Any, values: Any, source: Any, groups: Any) -> None:
        exits: list[Any] = []

        def compiled(program: LoopProgram) -> Any:
            verify_program(program)
            if plan.forced:
                program = plant_exits(program, plan.chooser)
                verify_program(program)
                exits[:] = [(point.kind.value, point.line, point.reason) for point in program.exits]
            if not by_machine:
                return Interpreted(program)
            level = plan.chooser.choice((0, 1, None))
            return compile_quickly(program, _jit[0]) if level is None else compile_program(
                program, _jit[0], level)

        if by_machine and not _jit:
            _jit.append(Jit(shelf=lambda: _shelf))
        try:
            if by_machine and not plan.forced and plan.seed % 2:
                compile_recorded(site, specialisation, values, source, groups)
            else:
                compile_specialisation(
                    site, specialisation, values, source, groups, compiled, lambda job: job(),
                    load_entry=lambda: load_loop_entry(_jit[0]) if by_machine else 0)
        except _TooLong:
            raise
        except Exception:
            report.crashes.append(traceback.format_exc())
            specialisation.refuse("CRASH")
        if plan.forced and specialisation.code is not None:
            specialisation.undo = True
            specialisation.code = replace(specialisation.code, exits=tuple(exits))
        if specialisation.state is State.COMPILED and plan.mode != "checked":
            specialisation.state = State.READY

    rewritten = rewrite_function(function, request)  # type: ignore[arg-type]
    if rewritten is None:
        report.refused.append("no loops")
        return report
    report.refused += [reason for _, reason in rewritten.refused]
    for site in rewritten.sites:
        site.hot_seconds = 0.0
        site.has_native_entry = plan.mode == "native"
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS, 1.0)  # again, as an exception of ``__del__`` is ignored
    original_run, original_size = LoopRun.run, LoopRun.__dict__["_compiled_size"]
    try:
        if plan.mode == "midway":
            LoopRun.run = _later(original_run, plan.chooser)  # type: ignore[method-assign]
        if plan.mode in ("parts", "midway"):
            LoopRun._compiled_size = lambda *_: plan.chooser.randint(1, 4)  # type: ignore[method-assign]
        else:
            LoopRun._compiled_size = lambda *_: 1000  # type: ignore[method-assign]
        for call, make in enumerate([*calls] * (NATIVE_CALLS if plan.mode == "native" else 1)):
            plain = observe(original, make(), plan.errors)
            other = observe(rewritten.function, make(), plan.errors)
            report.raised += "error" in plain
            found = difference(plain, other)
            if found:
                report.differences.append(f"call {call}: {found}")
                break
    except _TooLong:
        report.refused.append("too long")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        LoopRun.run, LoopRun._compiled_size = original_run, original_size  # type: ignore[method-assign]
    for site in rewritten.sites:
        for specialisation in site.specialisations.values():
            by_python = specialisation.runs
            specialisation.collect()
            report.runs += specialisation.runs
            report.native_runs += specialisation.runs - by_python
            if specialisation.reason.startswith("compiled code made"):
                report.differences.append(
                    f"check, line {site.node.lineno}: {specialisation.reason}"
                )
            elif specialisation.reason:
                report.refused.append(specialisation.reason)
            if specialisation.failure:
                report.failures.append(specialisation.failure)
    return report


def _later(run_loop: Any, chooser: random.Random) -> Any:
    """Return `LoopRun.run` that lets Python do some iterations first."""

    def begin(self: LoopRun, values: tuple[Any, ...]) -> Any:
        if (
            self.source is not None
            and not self._position
            and not self._handed
            and self.source.length > 0
            and (count := chooser.randint(0, 3))
        ):
            self._hand_out(count)
            return None
        return run_loop(self, values)

    return begin


def main_of_chunk(
    begin: int, end: int, machine: float, forced: bool, mode: str | None = None
) -> None:
    """Run seeds, with a line for each on the standard output."""
    from tests.loop_fuzz.generate import generate

    for seed in range(begin, end):
        print(f"seed {seed}", flush=True)
        plan = plan_of(seed, machine, forced)
        if mode:
            plan.mode = mode
        try:
            report = run(generate(seed), plan)
        except Exception:
            print("CRASH harness", traceback.format_exc().replace("\n", "\\n"), flush=True)
            continue
        for kind, texts in (
            ("DIFFERENT", report.differences),
            ("CRASH", report.crashes),
            ("refused", report.refused),
            ("failure", report.failures),
        ):
            for one in texts:
                print(kind, seed, one.replace("\n", "\\n")[-1500:], flush=True)
        print("runs", report.runs, report.raised, report.native_runs, flush=True)
    sys.stdout.flush()
