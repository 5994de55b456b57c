"""Decorated functions look like what they were: signature, help, name, completion, pickles."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from IPython.core.completer import IPCompleter

import jitla
from tools.supported_table import PAGE, page

ROOT = Path(__file__).parents[1]


@jitla.jit(numerics="strict")
def scaled(x: np.ndarray, *, by: float = 2.0) -> np.ndarray:
    """Scale an array."""
    return x * by + 1.0


class Model:
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
    assert list(inspect.signature(Model().twice).parameters) == ["x"]


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_functions_travel_by_pickle(pickler):
    again = pickler.loads(pickler.dumps(scaled))
    x = np.arange(5.0)
    assert (again(x, by=3.0) == scaled(x, by=3.0)).all()
    assert copy.deepcopy(scaled) is scaled and copy.copy(scaled) is scaled


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
