"""The suite itself, on a handful of tests: decorating, pending arrays, crashes, hangs, verdicts."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

import jitla
from tests.numpy_suite import lazies
from tests.numpy_suite.copies import PACKAGES, found_files, prepared
from tests.numpy_suite.runner import Batch, batches, run, shard
from tests.numpy_suite.verdict import MAX_REASONS, Reason, expectations, findings, totals, unused

HANGS = 10.0
TESTS = """
    import contextlib, os, time
    import hypothesis
    import hypothesis.strategies as st
    import numpy as np
    import pytest

    def traced(x):
        return hasattr(x + 0, "_s")  # only what stands for an array has a session

    @contextlib.contextmanager
    def around():
        yield

    @pytest.mark.parametrize("n", [1, 2])
    def test_plain(n):
        assert not traced(np.arange(3.0) + n)

    class TestMethods:
        @around()
        def test_wrapped(self):
            assert not traced(np.ones(3))

        @hypothesis.given(st.just(1))
        def test_given(self, n):
            assert not traced(np.ones(n))

    def test_pending():
        x = np.ones(3)
        assert getattr(x, "_n", -1) < 0

    def test_crashes():
        if traced(np.ones(2)):
            os.abort()

    def test_hangs():
        if traced(np.ones(2)):
            time.sleep(1000)

    def test_after():
        assert np.ones(2).sum() == 2

    def test_fails_anyway():
        assert np.ones(2).sum() == 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("suite")
    (made / "pytest.ini").write_text("[pytest]\naddopts = --assert=plain -p no:cacheprovider\n",
                                     encoding="utf-8")
    (made / "test_few.py").write_text(dedent(TESTS), encoding="utf-8")
    return made


def outcomes(folder: Path, mode: str) -> dict[str, str]:
    events = run(folder, [Batch(("test_few.py",), "0/1", 1)], mode, folder / mode, hangs=HANGS)
    return {item.partition("::")[2]: event["outcome"] for item, event in events.items()}


@pytest.mark.process
@pytest.mark.threads
@pytest.mark.timing
def test_the_plain_run_decorates_nothing(folder):
    found = outcomes(folder, "plain")
    assert found.pop("test_fails_anyway") == "failed"
    assert set(found.values()) == {"passed"}
    assert len(found) == 8


@pytest.mark.process
@pytest.mark.threads
@pytest.mark.timing
def test_decorated_bodies_are_traced_and_a_crash_or_a_hang_costs_one_item(folder):
    assert outcomes(folder, "decorate") == {
        "test_plain[1]": "failed", "test_plain[2]": "failed",
        "TestMethods::test_wrapped": "failed", "TestMethods::test_given": "failed",
        "test_pending": "passed", "test_crashes": "crash", "test_hangs": "hang",
        "test_after": "passed", "test_fails_anyway": "failed",
    }


@pytest.mark.process
@pytest.mark.threads
@pytest.mark.timing
def test_in_lazy_mode_new_arrays_are_pending(folder):
    events = run(folder, [Batch(("test_few.py",), "0/1", 1)], "lazy", folder / "lazy",
                 more=("-k", "pending or after"), hangs=HANGS)
    assert {item.partition("::")[2]: event["outcome"] for item, event in events.items()} == {
        "test_pending": "failed", "test_after": "passed"}


def test_what_is_held_elsewhere_is_not_begun_anew(monkeypatch):
    for kind in (lazies.CreationCall, lazies.ForeignCall):
        monkeypatch.setattr(kind, "__call__", kind.__call__)
    lazies.start_pending()
    found = []

    @jitla.jit
    def f(x):
        new = np.array([3.0, 1.0])
        again = np.asarray(new)
        drawn = np.random.default_rng(1).random(2)
        found.append((new is again, np.asarray(x) is x))
        kept = np.asfortranarray(np.ones((2, 3)))
        return new, again, drawn, kept.flags.f_contiguous

    x = np.ones(2)
    new, again, drawn, fortran = f(x)
    assert found == [(True, True)] and fortran
    assert new is again and list(new) == [3.0, 1.0]
    assert list(drawn) == list(np.random.default_rng(1).random(2))


@pytest.mark.process
@pytest.mark.threads
@pytest.mark.timing
def test_numpy_carries_its_tests(tmp_path):
    folder = prepared(tmp_path)
    assert prepared(tmp_path) == folder
    files = found_files(folder)
    assert {path.parts[1] for path in files} == set(PACKAGES)
    found = batches(folder, files)
    shards = [shard(found, i + 1, 8) for i in range(8)]
    assert sorted(batch for each in shards for batch in each) == sorted(found)
    loads = [sum(batch.weight for batch in each) for each in shards]
    assert max(loads) < 1.5 * min(loads)
    events = run(folder, [Batch(("numpy_tests/fft/tests/test_helper.py",), "0/4", 1)], "decorate",
                 tmp_path / "logs")
    assert events and {event["outcome"] for event in events.values()} == {"passed"}
    assert any(event["traced"] for event in events.values())


class TestVerdict:
    """What counts as worse, and what was expected."""

    PLAIN = {f"numpy_tests/a.py::{name}": {"outcome": outcome} for name, outcome in {
        "same": "passed", "worse[1]": "passed", "known": "failed", "gone": "passed",
        "skipped": "skipped", "better": "xfailed"}.items()}
    NOW = {f"numpy_tests/a.py::{name}": {"outcome": outcome, "text": name}
           for name, outcome in {
               "same": "passed", "worse[1]": "failed", "known": "failed", "skipped": "skipped",
               "better": "xpassed"}.items()}
    REASONS = (Reason("because", frozenset({"lazy"}), (re.compile(r"a\.py::worse.*"),
                                                       re.compile("never"))),)

    def test_worse(self):
        found = findings(self.PLAIN, self.NOW, "decorate", self.REASONS)
        assert [(each.item, each.outcome, each.reason) for each in found] == [
            ("a.py::better", "xpassed", None), ("a.py::gone", "missing", None),
            ("a.py::worse[1]", "failed", None)]

    def test_expected(self):
        found = findings(self.PLAIN, self.NOW, "lazy", self.REASONS)
        assert [each.item for each in found if each.reason == "because"] == ["a.py::worse[1]"]
        assert unused(found, "lazy", self.REASONS) == ["never"]
        assert re.search(r"^total +5 .* 1 +2 +0$", totals(self.NOW, found), re.MULTILINE)

    def test_a_crash_is_worse_than_a_failure(self):
        plain, now = {"x": {"outcome": "failed"}}, {"x": {"outcome": "crash"}}
        assert findings(plain, now, "lazy", ())


def test_the_list_of_expectations_is_short_and_says_why():
    reasons = expectations()
    assert len(reasons) <= MAX_REASONS
    assert len({reason.why for reason in reasons}) == len(reasons)
    for reason in reasons:
        assert len(reason.why) > 20 and reason.items
        assert reason.modes and reason.modes <= {"decorate", "lazy"}
    assert np.__version__
