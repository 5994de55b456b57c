"""Quantised functions: close to floats, the same on host and device, with a true report."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from tests.accel.digits import accuracy, digits, perceptron, train_perceptron

# Functions of floats on bytes: close to floats, the same on host and device, with a true report.

RNG = np.random.default_rng(5)


@pytest.fixture(scope="module")
def trained():
    pytest.importorskip("sklearn")
    known, unknown = digits()
    return train_perceptron(known), known, unknown


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_network_on_the_digits_loses_at_most_half_a_point(trained, per_channel):
    weights, known, unknown = trained
    flat = accuracy(perceptron(unknown.images, *weights), unknown)
    made = jitla.quantize(perceptron, [(known.images[:200], *weights)], per_channel=per_channel)
    host = made(unknown.images, *weights)
    assert flat > 0.9
    assert accuracy(host, unknown) >= flat - 0.005
    with jitla.options(accelerator="vta-pynq", placement="forced"):
        device = made(unknown.images, *weights)
    assert np.array_equal(host, device)
    assert made.report.agreement > 0.99
    assert made.report.products == 2


def test_the_report_is_what_the_results_are():
    def layer(x, w):
        return np.maximum(x @ w, 0)

    x, w = RNG.normal(size=(40, 30)).astype(np.float32), RNG.normal(size=(30, 8)).astype(np.float32)
    made = jitla.quantize(layer, [(x, w)])
    apart = np.abs(made(x, w).astype(float) - layer(x, w))
    assert made.report.largest == apart.max()
    assert made.report.mean == pytest.approx(apart.mean())
    pixels, weights = made.report.scales[0]
    assert pixels == pytest.approx(np.abs(x).max() / 127)
    assert weights == pytest.approx(np.abs(w).max() / 127)
    # every product is off by at most half a step of either operand
    bound = 30 * (pixels / 2 * np.abs(w).max() + weights / 2 * np.abs(x).max() + pixels * weights / 4)
    assert apart.max() <= bound


def test_columns_of_different_size_gain_by_scales_of_their_own():
    def product(x, w):
        return x @ w

    x = RNG.normal(size=(50, 20))
    w = RNG.normal(size=(20, 6)) * 10.0 ** -np.arange(6)
    one, own = (jitla.quantize(product, [(x, w)], per_channel=p) for p in (False, True))
    wanted = product(x, w)
    apart = [np.abs(q(x, w) - wanted).mean(axis=0) for q in (one, own)]
    assert (apart[1][3:] < apart[0][3:] / 5).all()


def test_convolutions_between_poolings_stay_on_bytes():
    def network(x, w, b, v):
        y = None
        around = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        for i in range(3):
            for j in range(3):
                part = around[:, i:i + 8, j:j + 8] @ w[i, j]
                y = part if y is None else y + part
        y = np.maximum(y + b, 0).reshape(len(x), 4, 2, 4, 2, -1).max(axis=(2, 4))
        return y.reshape(len(x), -1) @ v

    shapes = (6, 8, 8, 4), (3, 3, 4, 12), (12,), (192, 5)
    given = [RNG.normal(size=s).astype(np.float32) for s in shapes]
    made = jitla.quantize(network, [tuple(given)])
    host = made(*given)
    wanted = network(*given)
    assert np.abs(host - wanted).max() < 0.05 * np.abs(wanted).max()
    with jitla.options(accelerator="vta-pynq", placement="forced"):
        assert np.array_equal(made(*given), host)


def test_a_normalisation_is_in_weights_and_biases():
    def network(x, w, mean, spread, gain, shift, v):
        y = ((x @ w) - mean) / spread * gain + shift
        return np.maximum(y, 0) @ v

    given = [RNG.normal(size=s).astype(np.float32) for s in ((30, 20), (20, 12), 12, 12, 12, 12, (12, 4))]
    given[3] = np.abs(given[3]) + 0.5
    made = jitla.quantize(network, [tuple(given)])
    wanted = network(*given)
    host = made(*given)
    assert np.abs(host - wanted).max() < 0.05 * np.abs(wanted).max()
    with jitla.options(accelerator="vta-pynq", placement="forced"):
        assert np.array_equal(made(*given), host)
        (program,) = made.programs()
    (part,) = [h.attr("part") for s in program.plan.steps for h in [getattr(s, "hop", None)]
               if h is not None and h.op.name == "offload"]
    assert len(part.group) == 2  # both products, one after the other


def test_data_is_needed():
    with pytest.raises(jitla.TraceError, match="calibrate"):
        jitla.quantize(perceptron, [])
