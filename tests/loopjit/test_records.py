"""Records of loops on disk: what a later process trusts, and when it lowers a loop again."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

from jitla.codegen import Jit, compile_quickly, load_program
from jitla.loopjit import Loops, loop_compiler
from jitla.loopjit.records import (
    NameLog,
    NotRecordable,
    RecordStore,
    code_digest,
    constants_in,
    describe_object,
    record_key,
    replay,
)
from jitla.loopjit.specialisations import State
from jitla.loopjit.values import LoweringRefused
from jitla.runtime.disk_cache import DiskCache

FACTOR = 0.5


def halved(x):
    return x * FACTOR


def smoothed(x):
    for i in range(1, len(x)):
        x[i] = halved(x[i - 1]) + math.sqrt(abs(x[i]))
    return x


def tabled(x):
    for i in range(len(x)):
        y = {}
        y[i] = x[i]
    return y


class Process:
    """The loops of a process whose files are in `folder`; counts how often loops were lowered."""

    def __init__(self, folder, monkeypatch, maker="1"):
        disk = DiskCache(str(folder))
        self.jit = Jit(shelf=lambda: disk)
        self.store = RecordStore(lambda: disk, lambda: maker)
        self.lowered = 0
        lower = loop_compiler.lower_loop

        def counted(*args):
            self.lowered += 1
            return lower(*args)

        monkeypatch.setattr(loop_compiler, "lower_loop", counted)

    def request(self, site, specialisation, values, source, groups):
        loop_compiler.compile_specialisation(
            site, specialisation, values, source, groups, lambda program: compile_quickly(program, self.jit),
            lambda job: job(), self.store, lambda *args: load_program(*args, self.jit))

    def run(self, function, *args):
        """Return the specialisation of the loop of `function` after three calls, and the last result."""
        made = Loops(self.request).version(function)
        for site in made.entries:
            site.hot_seconds = 0.0
        for _ in range(3):
            result = made.version(*(np.copy(arg) for arg in args))
        return next(iter(made.sites[0].specialisations.values())), result


@pytest.fixture
def start(tmp_path, monkeypatch):
    monkeypatch.setattr(RecordStore, "on", True)
    return lambda **options: Process(tmp_path / "cache", monkeypatch, **options)


def test_code_that_has_passed_its_check_is_used_at_once_by_the_next_process(start):
    x = np.linspace(0.0, 3.0, 200)
    found, result = start().run(smoothed, x)
    assert found.state is State.READY
    process = start()
    found, again = process.run(smoothed, x)
    assert (again == result).all() and (again == smoothed(x.copy())).all()
    assert not process.lowered and found.state is State.READY and found.runs >= 3 \
        and not found.trials and not found.iterations
    assert found.code.owner.program.name == "smoothed"


def largest(table):
    found = None
    for i in range(len(table)):
        if found is None or table[i, 0] > found[0][0]:
            found = (table[i], i)
    return found


def test_variables_of_several_types_are_recorded(start):
    """The next process reads a variable that is None or a tuple as it was written."""
    table = np.random.default_rng(1).random((50, 3))
    start().run(largest, table)
    process = start()
    found, result = process.run(largest, table)
    assert not process.lowered and found.state is State.READY
    assert result[1] == largest(table)[1] and (result[0] == largest(table)[0]).all()


def test_refused_loops_are_refused_at_once_by_the_next_process(start):
    first, second = start(), start()
    found, _ = first.run(tabled, np.ones(3))
    again, _ = second.run(tabled, np.ones(3))
    assert (again.state, again.reason, again.line) == (State.REFUSED, found.reason, found.line)
    assert first.lowered or second.lowered == 0


@pytest.mark.parametrize("change", ["number", "code", "default", "builtin"])
def test_loops_are_lowered_again_if_names_stand_for_something_else(start, monkeypatch, change):
    x = np.linspace(0.0, 3.0, 200)
    start().run(smoothed, x)
    space = sys.modules[__name__]
    if change == "number":
        monkeypatch.setattr(space, "FACTOR", 0.25)
    elif change == "code":
        monkeypatch.setattr(space, "halved", lambda y: y * 0.75)
    elif change == "default":
        monkeypatch.setattr(halved, "__defaults__", (3.0,))
    else:
        monkeypatch.setattr(space, "abs", lambda y: y + 1.0, raising=False)
    process = start()
    found, result = process.run(smoothed, x)
    assert process.lowered == 1 and (result == smoothed(x.copy())).all()
    assert found.state is State.READY


def test_records_are_of_versions(start):
    start().run(smoothed, np.ones(50))
    process = start(maker="2")
    process.run(smoothed, np.ones(50))
    assert process.lowered == 1


def test_records_are_of_kinds_of_operands(start):
    start().run(smoothed, np.ones(50))
    process = start()
    process.run(smoothed, np.ones(50, np.float32))
    assert process.lowered == 1


def test_records_are_of_the_lines_of_a_function(start):
    code = smoothed.__code__
    moved = FunctionType(code.replace(co_firstlineno=code.co_firstlineno + 1), smoothed.__globals__)
    assert code_digest(moved.__code__) != code_digest(code)
    assert code_digest(code) == code_digest(pickle_of_code(code))


def pickle_of_code(code):
    import marshal
    return marshal.loads(marshal.dumps(code))


@pytest.mark.parametrize("damage", [b"", b"nonsense", pickle.dumps("text"), pickle.dumps((1, 2, 3))])
def test_damaged_records_are_ignored(start, monkeypatch, damage):
    process = start()
    monkeypatch.setattr(DiskCache, "get", lambda self, key, maker: damage if "loop record" in key else None)
    found, result = process.run(smoothed, np.ones(50))
    assert process.lowered == 1 and (result == smoothed(np.ones(50))).all()


def test_records_without_their_code_are_ignored(start, tmp_path, monkeypatch):
    start().run(smoothed, np.ones(50))
    get = DiskCache.get
    monkeypatch.setattr(
        DiskCache, "get", lambda self, key, maker: get(self, key, maker) if "loop record" in key else None)
    process = start()
    found, result = process.run(smoothed, np.ones(50))
    assert process.lowered == 1 and (result == smoothed(np.ones(50))).all()


def test_descriptions_are_of_what_every_process_has():
    assert describe_object(np.add) == ("object", "numpy", "add")
    assert describe_object(math.sqrt) == ("object", "math", "sqrt")
    assert describe_object(1) != describe_object(1.0) != describe_object(True)
    assert describe_object(0.0) != describe_object(-0.0)
    assert describe_object(np.float64(1.0)) != describe_object(1.0)
    assert describe_object(np) == ("module", "numpy")
    assert describe_object((1, np.sin)) == describe_object((1, np.sin))
    for value in (object(), np.frompyfunc(abs, 1, 1), lambda: 0, type("float64", (), {})):
        if isinstance(value, FunctionType):
            assert describe_object(value) == describe_object(value)
            continue
        with pytest.raises(NotRecordable):
            describe_object(value)


def test_a_log_is_incomplete_if_a_value_is_not_described():
    log = NameLog([])
    log.note("global", None, "x", object())
    assert not log.is_complete
    log = NameLog([])
    log.note("attribute", math, "pi", math.pi)  # that `math` was looked up is not logged
    assert not log.is_complete


def test_names_that_are_gone_end_a_replay():
    resolver = loop_compiler.NameResolver(smoothed)
    steps = [("global", -1, "no_such_name", ("int", "1"))]
    assert not replay(steps, resolver, LoweringRefused)


def test_keys_do_not_depend_on_addresses():
    class Site:
        node = __import__("ast").parse("for i in x: pass").body[0]
        function, names, results = smoothed, ("x",), ()

    class Source:
        key = "range", 1, 1, True, True

    keys = [record_key(Site, values, Source, (0,)) for values in (
        (np.ones(3), halved, 3, "a"), (np.ones(4), halved, 4, "a"), (np.ones(4), halved, 4, "b"))]
    assert keys[0] == keys[1] != keys[2] and f"{id(halved)}" not in keys[0]
    assert record_key(Site, (np.frompyfunc(abs, 1, 1),), Source, (0,)) is None
    assert constants_in((1, halved, np.ones(2))) == [halved]


def test_a_second_process_loads_no_lowering(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent("""
        import sys
        import numpy as np
        import jitla
        from jitla.engine import ENGINE

        def scaled(x):
            for i in range(1, len(x)):
                x[i] = 0.5 * x[i - 1] + x[i]
            return x

        fast = jitla.jit(scaled)
        for _ in range(60):
            assert (fast(np.arange(20_000.0)) == scaled(np.arange(20_000.0))).all()
            ENGINE.background.wait()
        assert fast.stats().loop_runs > 5, fast.stats()
        print(any(name in sys.modules for name in ("jitla.loopjit.lowering", "jitla.codegen.loop_programs")))
    """))
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=300,
            env={"PYTHONPATH": str(Path(__file__).parents[2]), "JITLA_CACHE_DIR": str(tmp_path / "cache"),
                 "PATH": "/usr/bin:/bin"})
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.strip())
    assert told == ["True", "False"]
