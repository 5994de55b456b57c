"""The decorator: options, kinds of callables, the look of decorated functions, types for checkers."""

from __future__ import annotations

import asyncio
import copy
import inspect
import os
import pickle
import pydoc
import re
import subprocess
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from IPython.core.completer import IPCompleter

import jitla
from jitla.config import Config
from tools.supported_table import PAGE, page

# The decorator with its options, on every kind of callable, and what explain says of the rest.

X = np.linspace(0.0, 1.0, 7)


def double(x):
    """Twice x."""
    return x + x


def steps(x, n):
    for i in range(n):
        yield x * float(i) + 1.0


async def later(x):
    await asyncio.sleep(0)
    return x * x


class Model:
    scale = 3.0

    @jitla.jit
    def method(self, x):
        return self.scale * x

    @classmethod
    @jitla.jit
    def inner(cls, x):
        return cls.scale * x

    @jitla.jit(strict=True)
    @classmethod
    def outer(cls, x):
        return cls.scale * x

    @jitla.jit
    @staticmethod
    def static(x):
        return 3.0 * x


def test_the_decorated_looks_like_the_function():
    fast = jitla.jit(double)
    assert (fast.__name__, fast.__doc__, fast.__wrapped__) == ("double", "Twice x.", double)
    assert inspect.signature(fast) == inspect.signature(double)
    assert jitla.jit(fast) is fast


@pytest.mark.parametrize("name", ["method", "inner", "outer", "static"])
def test_methods_of_every_kind(name):
    assert (getattr(Model(), name)(X) == 3.0 * X).all()


@pytest.mark.timing
def test_generators_and_coroutines():
    fast = jitla.jit(steps)
    assert [v[-1] for v in fast(X, 3)] == [1.0, 2.0, 3.0]
    assert fast.stats().kernel_runs == 3
    assert (asyncio.run(jitla.jit(later)(X)) == X * X).all()


@pytest.mark.timing
def test_compile_off_runs_the_plain_function():
    fast = jitla.jit(compile="off")(double)
    assert (fast(X) == X + X).all() and fast.stats().calls == 0
    assert [v[-1] for v in jitla.jit(compile="off")(steps)(X, 2)] == [1.0, 2.0]
    assert (asyncio.run(jitla.jit(compile="off")(later)(X)) == X * X).all()
    assert 'compile="off"' in str(jitla.explain(fast))
    again = jitla.jit(double)
    with jitla.options(compile="off"):
        again(X)
    again(X)
    assert again.stats().calls == 1


def test_explain_says_that_there_is_no_source():
    names: dict[str, object] = {}
    exec("def made(x): return x + x", names)
    fast = jitla.jit(names["made"])
    assert (fast(X) == X + X).all()
    assert "its source was not found" in str(jitla.explain(fast))


def test_explain_decorates_and_calls():
    text = str(jitla.explain(double, X, level="plan"))
    assert "1 call, 1 program" in text and "return x + x" in text


def test_wrong_use_is_explained():
    with pytest.raises(jitla.TraceError, match="use it as a decorator"):
        jitla.jit(7)
    with pytest.raises(jitla.ConfigError, match="'sync', 'off'"):
        jitla.jit(compile="later")


def test_what_exec_makes_is_refused_when_strict():
    space = {}
    exec("def made(x):\n    return x * 2.0\n\ndef steps(x):\n    yield x * 2.0\n", space)
    made, steps = (jitla.jit(space[name], strict=True) for name in ("made", "steps"))
    for call in (made, lambda x: list(steps(x))):
        for _ in range(2):
            with pytest.raises(jitla.UnsupportedError, match="source was not found.*\n.*drop strict=True"):
                call(np.ones(3))
    assert (jitla.jit(space["made"], compile="sync")(np.ones(3)) == 2.0).all()


# Decorated functions keep signature, help, name, completion and pickles.

ROOT = Path(__file__).resolve().parents[1]


@jitla.jit(numerics="strict")
def scaled(x: np.ndarray, *, by: float = 2.0) -> np.ndarray:
    """Scale an array."""
    return x * by + 1.0


class SurfaceModel:
    """Something with a method."""

    @jitla.jit
    def twice(self, x):
        """Double an array."""
        return x + x


def test_signature_name_and_help_are_those_of_the_function():
    assert str(inspect.signature(scaled)) == str(inspect.signature(scaled.__wrapped__))
    assert scaled.__name__ == "scaled" and scaled.__doc__ == "Scale an array."
    assert scaled.__annotations__ == scaled.__wrapped__.__annotations__
    assert inspect.isfunction(scaled) and repr(scaled).startswith("<function scaled at ")
    told = pydoc.plain(pydoc.render_doc(scaled)).replace("'", "")
    assert "scaled(x: " in told and "by: float = 2.0" in told and "Scale an array." in told
    assert inspect.getsource(scaled).startswith("@jitla.jit")
    assert list(inspect.signature(SurfaceModel().twice).parameters) == ["x"]


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_functions_travel_by_pickle(pickler):
    again = pickler.loads(pickler.dumps(scaled))
    x = np.arange(5.0)
    assert (again(x, by=3.0) == scaled(x, by=3.0)).all()
    assert copy.deepcopy(scaled) is scaled and copy.copy(scaled) is scaled


@pytest.mark.process
def test_functions_of_no_module_travel_by_cloudpickle_with_their_options(tmp_path):
    def local(x):
        return x * 2.5 + 1.0

    file = tmp_path / "function.pkl"
    file.write_bytes(cloudpickle.dumps(jitla.jit(local, compile="sync")))
    program = ("import pickle, sys, numpy as np\n"
               f"f = pickle.load(open({str(file)!r}, 'rb'))\n"
               "print(f(np.ones(3)).tolist(), f.stats().calls, f.stats().kernels)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[3.5, 3.5, 3.5] 1 1\n"


def test_completion_offers_what_functions_have_and_options():
    completer = IPCompleter(namespace={"jitla": jitla, "scaled": scaled}, use_jedi=False)
    assert {".explain", ".stats", ".compile", ".cache_clear", ".recompile"} <= {
        word.removeprefix("scaled") for word in completer.complete("scaled.")[1]}
    assert any(word.endswith(".num_threads") for word in completer.complete("jitla.config.num")[1])
    assert {"explain", "jit", "recompilations"} <= set(dir(jitla))


def test_every_public_name_has_help():
    for name in jitla.__all__:
        assert inspect.getdoc(getattr(jitla, name)), name


def test_functions_explain_themselves():
    x = np.arange(2000.0)
    assert "took" in str(scaled.explain(x)) and "<svg" in scaled._repr_html_()


def test_shapes_are_explained_without_arrays():
    def centred(x):
        return x - x.mean(axis=0)

    text = str(jitla.explain(jitla.jit(centred), jitla.spec(500, 7)))
    assert "500x7" in text and "1 call" in text


def test_the_page_of_what_is_supported_is_that_of_the_op_table():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tools.supported_table"


@pytest.mark.process
def test_disabled_by_the_environment():
    program = "import jitla\ndef f(x): return x\nprint(jitla.jit(f) is f)"
    for value, told in (("1", "True\n"), ("0", "False\n")):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                              env={**os.environ, "JITLA_DISABLE": value, "PYTHONPATH": str(ROOT)})
        assert done.stdout == told


def test_the_package_holds_no_machine_code():
    kinds = {file.suffix for file in (ROOT / "jitla").rglob("*") if file.is_file()} - {".pyc"}
    assert kinds <= {".json", ".py", ".typed", ""}


def test_promises_name_tests_that_exist():
    texts = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*.py"))
    page = (ROOT / "tests" / "promises.txt").read_text(encoding="utf-8")
    assert page.count("\n") > 40
    for name in re.findall(r"\b(?<![/\w])(test_\w+)(?![\w./])", page):
        assert re.search(rf"def {name}\b", texts) or re.search(rf"def test_\w*{name[5:]}\b", texts), name
    for path in re.findall(r"\b(tests/[\w/.]+\w)", page):
        assert (ROOT / path).exists(), path


# A type checker sees decorated functions as what they were, and the options with their types.

PROGRAM = '''
from typing import assert_type

import jitla
import numpy as np

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


@jitla.jit
def axpy(a: float, x: Vector, y: Vector) -> Vector:
    return a * x + y


@jitla.jit(numerics="strict", compile="sync")
def power_sum(x: Vector, *, order: int = 2) -> float:
    return float((x**order).sum())


class Model:
    w: Vector

    @jitla.jit
    def predict(self, x: Vector) -> Vector:
        return self.w * x

    @classmethod
    @jitla.jit
    def width(cls, x: Vector) -> int:
        return len(x)

    @jitla.jit(strict=True)
    @staticmethod
    def twice(x: Vector) -> Vector:
        return x + x


def use(x: Vector, model: Model) -> str:
    assert_type(axpy(2.0, x, x), Vector)
    assert_type(power_sum(x, order=3), float)
    assert_type(model.predict(x), Vector)
    assert_type(Model.width(x), int)
    assert_type(Model.twice(x), Vector)
    axpy("no", x, x)  # type: ignore[arg-type]
    power_sum(x, 3)  # type: ignore[call-arg]
    jitla.jit(numerics=1)  # type: ignore[call-overload]
    with jitla.options(num_threads=1) as config:
        assert_type(config.num_threads, int)
    jitla.config.num_threads = 2
    jitla.config.numerics = 2  # type: ignore[assignment]
    return str(jitla.explain(axpy).at("plan")) + jitla.coverage()
'''


@pytest.mark.process
@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is missing")
def test_a_typed_program_passes_mypy(tmp_path):
    program = tmp_path / "typed_program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "--config-file",
               str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path), str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_option_is_declared_for_checkers():
    text = (ROOT / "jitla" / "config.py").read_text(encoding="utf-8")
    declared = text.partition("\nif TYPE_CHECKING:")[2].partition("\n\n\n")[0]
    rows = [line.strip() for line in declared.splitlines()[1:]]
    assert rows == [f"{f.name}: {f.type}" for f in fields(Config) if f.name != "_epoch"]
