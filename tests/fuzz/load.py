"""A program's source as a module that runs: plain, jitted, or with noise in its inexact functions."""

from __future__ import annotations

import ast
import importlib
import linecache
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partialmethod
from math import inf
from random import Random
from types import CodeType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tests.fuzz.noise import Noisy
from tests.fuzz.sparse_noise import SMOOTH

PLAIN = False
QUICK = False
NEEDED = ("scipy.sparse", "scipy.special", "tests.fuzz.generate", "tests.fuzz.sparse",
          "tests.fuzz.runner", "tests.fuzz.tally")
OURS = ("jitla", "jitla.tracing", "jitla.codegen", "jitla.recompile", "jitla.explanations.explanation",
        "jitla.explanations.collect", "jitla.runtime.disk_cache")


def plain_jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Stand for a decorator that does nothing."""
    return function


def the_jit() -> Callable[..., Any]:
    """Return the decorator under test."""
    if PLAIN:
        return plain_jit
    import jitla

    return jitla.jit


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run kernels on `count` threads; what is as small as here is searched for rewrites, too."""
    if PLAIN:
        yield
        return
    import jitla

    with jitla.options(num_threads=count, search_from_us=0):
        yield


def stats(function: Any) -> dict[str, float]:
    """Return what a decorated function counted; nothing for a plain one."""
    counted = getattr(function, "stats", None)
    return dict(counted()) if counted else {}


AGAIN = re.compile(r"(?m)^(?=AGAIN = )")


class Section(NamedTuple):
    """A part of a program, and how many lines stand before it."""

    text: str
    line: int


_SEEN: set[str] = set()


def new_kernels() -> list[str]:
    """Return the names, made from their code, of the modules compiled since the last call."""
    if PLAIN:
        return []
    from jitla.engine import ENGINE

    made = [name for backend in ENGINE._backends.values() for name in backend.jit.objects]
    new = set(made) - _SEEN if len(made) != len(_SEEN) else set()
    _SEEN.update(new)
    return [name[:16] for name in new]


def prepare() -> None:
    """Import what programs need, and what they have imported when they need it."""
    for name in (*NEEDED, *([] if PLAIN else OURS)):
        importlib.import_module(name)
    settle_indices()


def settle_indices() -> None:
    """Let SciPy's sums of sparse matrices have index arrays of one dtype.

    Which of two it is says the memory it allocates for entries that then are not there.
    """
    from scipy.sparse import _compressed

    _compressed.np = SimpleNamespace(**{**vars(np), "empty": np.zeros})


def quick_kernels() -> None:
    """Let LLVM make code of its level 0 from now on, in this process: the same IR, sooner.

    None of it is kept on disk, where other processes would find it under the name of better code.
    """
    import jitla
    from jitla.codegen.jit import Jit

    jitla.configure(disk_cache=False)
    global QUICK
    QUICK, emit = True, Jit._emit
    Jit._emit = lambda jit, text, level: emit(jit, text, 0)  # type: ignore[method-assign]


def retreat_somewhere() -> None:
    """Let calls that are traced go on plain, from a block on that is drawn, from now on."""
    from jitla.tracing import session

    class Drawn:
        dice = Random(1)

        @property
        def check_at(self) -> float:
            return 0.0 if self.dice.random() < 0.3 else inf

        def add_new_block(self, path: tuple[int, ...], seconds: float) -> None:
            """Let new blocks cost nothing."""

        def is_exhausted(self, site: Any) -> bool:
            """Let the call go on plain where that was drawn."""
            return True

    session.run_traced.__defaults__ = (Drawn(),)


def lower(**thresholds: Any) -> None:
    """Change thresholds of tracing for the process."""
    from jitla.config import configure, current

    configure(thresholds=replace(current().thresholds, **thresholds))


def observe_at_once() -> None:
    """Let programs tell of flags themselves as soon as they may, though compiling costs more."""
    lower(min_replay_ns=0.0)


def store_late() -> None:
    """Let arrays of any size be updated in place from their shifted parts without a copy."""
    from jitla.tracing import mutation as memory

    memory.MAX_CACHED_BYTES = 0


def index_at_once() -> None:
    """Let loops of our own read and write where indices, masks and labels say, however few there are."""
    lower(min_gather_elements=1, min_loop_indices=0, min_compiled_indices=0, min_deferred_key_elements=0,
          min_positions=0)


def record_all() -> None:
    """Let operations on sparse matrices be recorded, however few entries they have."""
    lower(min_sparse_elements=0)


def split_all() -> None:
    """Let threads share operations on sparse matrices, and tiles cut them, however few entries they have."""
    from jitla.codegen import LlvmBackend
    from jitla.codegen.indexing.kernels import IndexThresholds
    from jitla.codegen.sparse_kernels import SparseThresholds

    of_sparse = SparseThresholds(min_parallel_entries=16, max_tile_bytes=1 << 10)
    of_indices = IndexThresholds(min_parallel_elements=16)
    backend: Any = LlvmBackend
    backend.stored = partialmethod(LlvmBackend.stored, thresholds=of_sparse)
    backend.indexed = partialmethod(LlvmBackend.indexed, thresholds=of_indices)


def trace_soon() -> None:
    """Trace the second call of each class."""
    from jitla.dispatch.function_state import FunctionTracer
    from jitla.tiering import ledger, policy

    policy.MIN_TRACED_SECONDS = policy.RECORDING_SECONDS = policy.LOADING_SECONDS = 0.0
    ledger.REGRET_SECONDS = ledger.PROCESS_REGRET_SECONDS = policy.CROWDED_PROCESSORS = 1e9
    FunctionTracer.load = lambda self: self.state.try_load_tracing()  # type: ignore


def take_turns() -> None:
    """Trace every call that is not plain, wait for its programs, and run the next one plain."""
    from jitla.tiering import policy

    trace_soon()
    policy.LONG_SECONDS, policy.WAIT_RATIO = 0.0, -1.0  # calls are traced from the first on
    policy.MAX_LOSSES, policy.PENALTY_GROWTH = 1 << 60, 0.0
    policy.TRIAL_CALLS, policy.MAX_UNCOUNTED_CALLS, policy.MAX_RESTARTS = 1, 0, 1 << 60
    policy.GAIN_SHARE = policy.GAIN_SECONDS = 1e9  # every trial loses


def compile_as(mode: str) -> None:
    """Compile programs before they run ("sync"), behind NumPy ("background"), or by their costs ("auto")."""
    import jitla

    jitla.configure(compile=mode)


def keep_values() -> None:
    """Keep every value that stays the same from run to run of a block, whatever it costs."""
    import jitla
    from jitla.tracing import hoisting as keeping

    jitla.configure(invariants="all")
    vars(keeping)["is_alone"] = lambda: True  # threads of the fuzzer have arrays of their own


class _Reroute(ast.NodeTransformer):
    """Send operators that round differently through functions that the noise reaches."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        names = {ast.MatMult: "at", ast.Pow: "power", ast.Mult: "times"}
        return self._call(names.get(type(node.op)), [node.left, node.right], node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Mult):
            return node
        again = ast.parse(ast.unparse(node.target), mode="eval").body
        shaken = ast.Expr(ast.copy_location(self._call("timed", [again], again), node))
        return [node, ast.copy_location(shaken, node)]

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Subscript):
            held = ast.parse(ast.unparse(target.value), mode="eval").body
            node.value = self._call("storable", [node.value, held], node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in ("dot", "sum", "mean", "astype"):
            if not (isinstance(called.value, ast.Name) and called.value.id == "np"):
                return self._call(called.attr, [called.value, *node.args], node, node.keywords)
        if isinstance(called, ast.Attribute) and called.attr in SMOOTH and ast.unparse(called.value) != "np":
            return self._call("entrywise", [ast.Constant(called.attr), called.value, *node.args], node)
        return node

    def _call(
        self, name: str | None, operands: list[ast.expr], node: ast.expr, options: Sequence[ast.keyword] = ()
    ) -> ast.expr:
        if name is None:
            return node
        function = ast.Attribute(ast.Name("np", ast.Load()), name, ast.Load())
        return ast.copy_location(ast.Call(function, operands, list(options)), node)


@lru_cache(4)
def _code(source: str, filename: str, rerouted: bool) -> CodeType:
    if not rerouted:
        return compile(source, filename, "exec", dont_inherit=True)
    tree = ast.fix_missing_locations(_Reroute().visit(ast.parse(source, filename)))
    return compile(tree, filename, "exec", dont_inherit=True)


def module(
    source: str, name: str, jit: Callable[..., Any], noise: Noisy | None = None
) -> dict[str, Any]:
    """Run the source of a program; the code can be found by its (invented) file name."""
    filename = f"<{name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    names: dict[str, Any] = {"jit": jit, "__name__": name}
    exec(_code(source, filename, noise is not None), names)
    if noise is not None:
        names["np"], names["special"] = noise, noise.special
    return names


def again(section: Section, names: dict[str, Any]) -> None:
    """Put other arguments for its function into a module that ran; how it is called is said anew."""
    for word in ("AT_ONCE", "FAULTS"):
        names.pop(word, None)
    exec(arguments(section.text.partition("\n")[2].strip()), names)


@lru_cache(64)
def arguments(text: str) -> CodeType:
    """Return the code that makes arguments: it has run once when it was drawn, and runs on both sides."""
    return compile(text, "<arguments>", "exec", dont_inherit=True)


def sections(source: str) -> list[Section]:
    """Return the parts of a program: a module, and what makes other arguments for its function."""
    found, line = [], 0
    for text in AGAIN.split(source):
        found.append(Section(text, line))
        line += text.count("\n")
    return found


def forget(name: str) -> None:
    """Let go of the text of a module."""
    linecache.cache.pop(f"<{name}>", None)
