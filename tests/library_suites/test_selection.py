"""A small fixed part of the tests of SciPy and scikit-learn, decorated; and what runs and judges them."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from textwrap import dedent

import pytest

from tests.library_suites import decoration
from tests.library_suites.__main__ import MODES, report, run_batches, thinned
from tests.library_suites.comparison import EXPECTED, MAX_REASONS, differences, groups
from tests.library_suites.copies import (
    NAMES,
    found_files,
    left_alone,
    prepared,
    renamed_binary,
    renamed_text,
    site_packages,
)
from tests.numpy_suite.items import in_part
from tests.numpy_suite.runner import Batch, batches, shard
from tests.numpy_suite.verdict import Reason, expectations

SELECTION = {
    "scipy": ("scips/linalg/tests/test_decomp_cholesky.py", "scips/interpolate/tests/test_polyint.py",
              "scips/signal/tests/test_max_len_seq.py"),
    "sklearn": ("sklearn/linear_model/tests/test_bayes.py", "sklearn/tests/test_naive_bayes.py"),
}
# Those that compile a minute long, and make the same calls for many shapes, are not of the selection.
LONG = "not shapes and not CubicSpline"
WARNING = {"sklearn"}  # warnings are given in one of the selections
FEWEST = {"scipy": 100, "sklearn": 30}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = tmp_path_factory.mktemp("libraries")
    yield made
    shutil.rmtree(made)


@pytest.mark.process
@pytest.mark.threads
@pytest.mark.timing
@pytest.mark.timeout(900)  # a minute where nothing else runs
@pytest.mark.parametrize("suite", sorted(SELECTION))
def test_a_part_of_the_tests_of_a_library_is_as_in_the_plain_run(home, suite):
    found = [Batch(SELECTION[suite], "0/1", 1)]
    runs = {mode: run_batches(home, suite, mode, found, home / suite / mode, more=("-k", LONG))
            for mode in ("plain", *MODES)}
    assert sum(event["outcome"] == "passed" for event in runs["plain"].values()) >= FEWEST[suite]
    assert not any(event.get("traced") for event in runs["plain"].values())
    assert any(event.get("warnings") for event in runs["plain"].values()) == (suite in WARNING)
    assert sum(event.get("traced", False) for event in runs["sync"].values()) > len(runs["sync"]) / 2
    for mode in MODES:
        found = differences(runs["plain"], runs[mode], mode, expectations(EXPECTED))
        assert runs[mode].keys() == runs["plain"].keys()
        assert not [finding for finding in found if not finding.reason]


def test_the_copy_has_all_tests_and_does_not_import_the_original(home):
    folder, _ = prepared(home, "scipy")
    assert prepared(home, "scipy")[0] == folder
    files = found_files(folder, "scipy")
    assert len(files) > 200
    found = batches(folder, files)
    assert sorted(batch for i in range(8) for batch in shard(found, i + 1, 8)) == sorted(found)
    text = (folder / "scips" / "linalg" / "_basic.py").read_text(encoding="utf-8")
    assert "scips" in text and "import scipy" not in text and "from scipy" not in text
    assert len(left_alone(site_packages())) < 15


def test_one_item_in_some_is_of_the_part():
    items = [f"item{i}" for i in range(500)]
    part = {item for item in items if in_part(item, "1/3")}
    few = {item for item in items if in_part(item, thinned("1/3", 5))}
    assert few < part and 20 < len(few) < 50
    assert thinned("1/3", 1) == "1/3"


def test_names_are_replaced_where_they_are_names():
    assert renamed_text("from scipy.linalg import x  # scipy_x, docs.scipy.org, jax.scipy, `scipy.fft`") == \
        "from scips.linalg import x  # scipy_x, docs.scipy.org, jax.scipy, `scips.fft`"
    made, left = renamed_binary(b"\0scipy.linalg\0$ORIGIN/../scipy.libs\0scipy_dgemm\0")
    assert made == b"\0scips.linalg\0$ORIGIN/../scipy.libs\0scipy_dgemm\0" and not left


MODULE = """
    import functools
    from dataclasses import dataclass
    from os.path import join

    def f(x):
        return x + 1

    g = f
    TABLE = {"f": (f, join), "more": [f, 1]}

    async def asynchronous():
        yield 1

    @dataclass
    class Point:
        x: int

        def method(self):
            return f(self.x)

        @staticmethod
        def static(x):
            return x

        @classmethod
        def of(cls, x):
            return cls(x)

        @property
        def twice(self):
            "Documented."
            return 2 * self.x

        @functools.cached_property
        def thrice(self):
            return 3 * self.x
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "pack_decorated"
    (folder / "tests").mkdir(parents=True)
    for name in ("__init__", "tests/__init__"):
        (folder / f"{name}.py").touch()
    (folder / "module.py").write_text(dedent(MODULE), encoding="utf-8")
    (folder / "user.py").write_text("from pack_decorated.module import f\n", encoding="utf-8")
    (folder / "tests" / "helper.py").write_text("def f(): pass\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(decoration, "DECORATED", [])
    yield "pack_decorated"
    for name in [name for name in sys.modules if name.partition(".")[0] == "pack_decorated"]:
        del sys.modules[name]


def test_what_a_package_defines_is_decorated_on_import(package):
    decoration.start_decorating(package, {"compile": "sync"})
    module = importlib.import_module(f"{package}.module")
    point = module.Point(2)

    def is_decorated(function):
        return hasattr(function, "__jitla_state__")

    own = vars(module.Point)
    assert all(map(is_decorated, (module.f, own["method"], own["static"].__func__, own["of"].__func__,
                                  own["twice"].fget, own["thrice"].func)))
    assert not any(map(is_decorated, (
        module.join, module.asynchronous, own["__init__"], own["__eq__"], own["__repr__"])))
    assert module.f is module.g is importlib.import_module(f"{package}.user").f
    assert module.TABLE == {"f": (module.f, module.join), "more": [module.f, 1]}
    assert len(decoration.DECORATED) == 6
    assert (point.method(), point.static(1), point.of(3).x, point.twice, point.thrice) == (3, 1, 3, 4, 6)
    assert own["twice"].__doc__ == "Documented."
    assert not is_decorated(importlib.import_module(f"{package}.tests.helper").f)


def test_a_package_that_is_there_already_is_refused(package):
    importlib.import_module(f"{package}.module")
    with pytest.raises(RuntimeError, match="imported before"):
        decoration.start_decorating(package, {})


def test_what_is_left_out():
    assert decoration.is_left_out("scips.linalg.tests.test_basic")
    assert decoration.is_left_out("scips._lib.array_api_compat.numpy")
    assert decoration.is_left_out("sklearn.externals._arff")
    assert not decoration.is_left_out("scips._lib._util")
    assert not decoration.is_left_out("sklearn.utils.extmath")


def _cause(kind: str, message: str = "") -> dict:
    return {"kind": kind, "message": message, "frames": ["scips/a.py:1 f", "numpy/b.py:2 g"]}


PLAIN = {
    "scips/a/x.py::same": {"outcome": "passed", "warnings": [["UserWarning", "a"]]},
    "scips/a/x.py::warns": {"outcome": "passed", "warnings": [["UserWarning", "a"]]},
    "scips/a/x.py::kind": {"outcome": "failed", "cause": _cause("ValueError")},
    "scips/a/x.py::worse1": {"outcome": "passed"},
    "scips/a/x.py::worse2": {"outcome": "passed"},
    "scips/a/x.py::late": {"outcome": "passed"},
}
NOW = {
    "scips/a/x.py::same": {"outcome": "passed", "warnings": [["UserWarning", "a"]]},
    "scips/a/x.py::warns": {"outcome": "passed", "warnings": [["UserWarning", "b"]]},
    "scips/a/x.py::kind": {"outcome": "failed", "cause": _cause("TypeError"), "text": "t"},
    "scips/a/x.py::worse1": {"outcome": "failed", "cause": _cause("ValueError", "of 1"), "text": "t"},
    "scips/a/x.py::worse2": {"outcome": "failed", "cause": _cause("ValueError", "of 22"), "text": "t"},
    "scips/a/x.py::late": {"outcome": "timeout", "cause": _cause("Failed"), "text": "t"},
}


class TestComparison:
    """What counts as different, and what is shown of it."""

    def test_outcomes_kinds_and_warnings_are_compared(self):
        found = differences(PLAIN, NOW, "sync", ())
        assert {finding.item.partition("::")[2]: finding.outcome for finding in found} == {
            "warns": "warnings", "kind": "otherwise", "worse1": "failed", "worse2": "failed",
            "late": "timeout"}
        texts = {finding.item.partition("::")[2]: finding.text for finding in found}
        assert texts["warns"] == "+ UserWarning: b\n- UserWarning: a"
        assert texts["kind"].startswith("TypeError instead of ValueError")
        assert not differences(PLAIN, PLAIN, "sync", ())

    def test_reasons_are_for_modes(self):
        reasons = (Reason("because", frozenset({"default"}), (re.compile(r"a/x\.py::w.*"),)),)
        assert not any(finding.reason for finding in differences(PLAIN, NOW, "sync", reasons))
        found = differences(PLAIN, NOW, "default", reasons)
        assert {finding.item for finding in found if finding.reason} == {
            "a/x.py::warns", "a/x.py::worse1", "a/x.py::worse2"}

    def test_causes_are_put_together(self, capsys):
        found = differences(PLAIN, NOW, "sync", ())
        made = groups(found, NOW)
        assert made[0].items == ("a/x.py::worse1", "a/x.py::worse2") and len(made) == 4
        assert "scips/a.py:1 f" in made[0].cause and "of #" in made[0].cause
        report(found, NOW)
        out = capsys.readouterr().out
        assert "== 2 x failed: ValueError" in out and "a/x.py::warns" in out
        assert out.splitlines()[-1].split()[-2:] == ["5", "0"]


def test_the_list_of_expectations_says_why():
    reasons = expectations(EXPECTED)
    assert len(reasons) <= MAX_REASONS
    assert len({reason.why for reason in reasons}) == len(reasons)
    for reason in reasons:
        assert len(reason.why) > 20 and reason.items
        assert reason.modes and reason.modes <= set(MODES)
    assert set(NAMES) == set(SELECTION)
