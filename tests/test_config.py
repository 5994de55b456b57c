"""Options: defaults, sources, scopes, epochs, and errors that say what to do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

import jitla
from jitla import config, runtime
from jitla.config import (
    Config,
    TracingThresholds,
    configure,
    current,
    describe,
    from_environment,
    options,
)
from jitla.errors import ConfigError, JitlaWarning


@pytest.fixture(autouse=True)
def unchanged():
    before = {f.name: getattr(current(), f.name) for f in fields(Config)}
    yield
    configure(**before)


def test_every_field_has_a_default_and_a_line():
    assert Config() == from_environment({})
    for f in fields(Config):
        assert f.metadata["doc"] and f.metadata["check"](f.default) == f.default
        shown = f.name in describe() and f"JITLA_{f.name.upper()}" in describe()
        assert shown is not f.metadata["internal"]


def test_thresholds_are_for_tests_only():
    with pytest.warns(JitlaWarning, match="JITLA_THRESHOLDS is not known"):
        assert from_environment({"JITLA_THRESHOLDS": "0"}) == Config()
    with pytest.raises(ConfigError) as caught:
        configure(treshold=1)
    assert "thresholds" not in str(caught.value)
    with pytest.raises(ConfigError, match="an object of TracingThresholds"):
        configure(thresholds=3)
    epoch = current().epoch
    with options(thresholds=TracingThresholds(max_classes=3)) as changed:
        assert changed.epoch != epoch and changed.thresholds.max_classes == 3
    assert current().epoch == epoch


def test_a_config_is_frozen():
    with pytest.raises(FrozenInstanceError):
        current().numerics = "strict"


@pytest.mark.parametrize(("variable", "value", "name", "wanted"), [
    ("JITLA_NUMERICS", "strict", "numerics", "strict"), ("JITLA_STRICT", "1", "strict", True),
    ("JITLA_STRICT", "off", "strict", False), ("JITLA_STRICT", "", "strict", False),
    ("JITLA_DISABLE", "TRUE", "disable", True), ("JITLA_NUM_THREADS", " 4", "num_threads", 4),
    ("JITLA_COMPILE", "off", "compile", "off"),
    ("JITLA_CACHE_DIR", "some/where", "cache_dir", "some/where"),
])
def test_the_environment_is_read(variable, value, name, wanted):
    assert getattr(from_environment({variable: value, "HOME": "x"}), name) == wanted


@pytest.mark.parametrize(("variable", "value", "message"), [
    ("JITLA_NUMERICS", "exact", "JITLA_NUMERICS='exact' is not possible; use one of 'strict', 'numpy'"),
    ("JITLA_NUM_THREADS", "-1", "JITLA_NUM_THREADS='-1' is not possible; use an integer from 0 to 1024"),
    ("JITLA_STRICT", "maybe", "JITLA_STRICT='maybe' is not possible; use True or False"),
])
def test_wrong_values_in_the_environment_name_the_variable(variable, value, message):
    with pytest.raises(ConfigError, match=message):
        from_environment({variable: value})


def test_unknown_variables_warn_only():
    with pytest.warns(JitlaWarning, match="JITLA_NUMERIC is not known.*JITLA_NUMERICS"):
        assert from_environment({"JITLA_NUMERIC": "strict"}) == Config()


@pytest.mark.parametrize(("changes", "message"), [
    ({"numeric": "strict"}, "no option 'numeric'; known are numerics"),
    ({"zzz": 1}, "no option 'zzz'; known are numerics, strict"),
    ({"numerics": "fast"}, "numerics='fast' is not possible; use one of 'strict', 'numpy', 'relaxed'"),
    ({"numerics": ["strict"]}, "is not possible"), ({"strict": 1}, "strict=1 is not possible"),
    ({"num_threads": True}, "num_threads=True is not possible"), ({"num_threads": 2.0}, "num_threads=2.0"),
    ({"compile": "async"}, "use one of 'auto', 'background', 'sync', 'off'"),
    ({"events": -1}, "an integer from 0"),
    ({"cache_dir": 3}, "cache_dir=3 is not possible; use the path of a directory"),
])
def test_errors_say_what_to_try(changes, message):
    before = current()
    for change in (configure, lambda **c: options(**c).__enter__()):
        with pytest.raises(ConfigError, match=message):
            change(**changes)
    assert current() is before


def test_options_nest_and_end():
    before = current()
    with options(numerics="strict") as outer:
        assert current() is outer and current().numerics == "strict"
        with options(num_threads=3):
            assert (current().numerics, current().num_threads) == ("strict", 3)
        assert current() is outer
        with pytest.raises(KeyError), options(num_threads=5):
            raise KeyError
        assert current() is outer
    assert current() is before


@pytest.mark.threads
def test_options_hold_for_one_thread_only():
    seen = []
    with options(numerics="relaxed"):
        worker = threading.Thread(target=lambda: seen.append(current().numerics))
        worker.start()
        worker.join()
    assert seen == ["numpy"]


@pytest.mark.timing
def test_options_hold_for_one_task_only():
    async def task(name: str) -> str:
        with options(numerics=name):
            await asyncio.sleep(0)
            return current().numerics

    async def both() -> list[str]:
        return await asyncio.gather(task("strict"), task("relaxed"))

    assert asyncio.run(both()) == ["strict", "relaxed"]


def test_configure_is_for_the_process_and_options_stay():
    with options(num_threads=2):
        configure(numerics="strict", num_threads=7)
        assert (current().numerics, current().num_threads) == ("numpy", 2)
    assert (current().numerics, current().num_threads) == ("strict", 7)


def test_the_epoch_changes_with_each_change_and_returns():
    first = current().epoch
    with options(numerics="strict"):
        second = current().epoch
    with options(numerics="strict"):
        assert current().epoch == second != first
    with options(numerics="numpy"):
        assert current().epoch == first


def test_options_are_attributes_of_the_module():
    assert config.numerics == "numpy" and "num_threads" in dir(config)
    config.numerics = "strict"
    assert current().numerics == "strict"
    with pytest.raises(ConfigError, match="known are numerics"):
        config.numeric = "strict"
    with pytest.raises(ConfigError, match="num_threads"):
        config.num_threads = -2
    with pytest.raises(AttributeError, match="nonsense"):
        _ = config.nonsense


@pytest.mark.process
def test_the_process_starts_with_its_environment():
    code = "from jitla.config import current; assert current().numerics == 'relaxed'"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "JITLA_NUMERICS": "relaxed"})


def test_threads_are_those_of_the_block_and_only_there() -> None:
    @jitla.jit
    def f(a, b):
        return np.exp(a * b) - a, (a * b).sum()

    def shared() -> int:
        return runtime.statistics()["shared"]

    a, b = np.random.default_rng(0).random((2, 300_000))
    first = f(a, b)
    usual = runtime.threads()
    with options(num_threads=1):
        before = shared()
        alone = f(a, b), f(a, b)
        assert shared() == before
    with options(num_threads=7):
        many = f(a, b)
        assert runtime.threads() == usual
    again = f(a, b)
    for values in (*alone, many, again):
        assert all(x.tobytes() == y.tobytes() for x, y in zip(first, values, strict=True))
