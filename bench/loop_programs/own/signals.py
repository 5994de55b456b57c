"""Signal processing."""

import math

import numpy as np

from bench.loop_programs.own.program import Own


def fir_filter(x, taps):
    n = len(taps)
    y = np.zeros(len(x))
    for i in range(n - 1, len(x)):
        y[i] = np.dot(taps, x[i - n + 1:i + 1][::-1])
    return y


def exponential_average(x, alpha):
    out = []
    level = x[0]
    for value in x:
        level = alpha * value + (1 - alpha) * level
        out.append(level)
    return np.array(out)


def median_of_window(window):
    values = window.copy()
    for i in range(1, len(values)):
        key = values[i]
        j = i - 1
        while j >= 0 and values[j] > key:
            values[j + 1] = values[j]
            j -= 1
        values[j + 1] = key
    return values[len(values) // 2]


def median_filter(x, width):
    half = width // 2
    y = x.copy()
    for i in range(half, len(x) - half):
        y[i] = median_of_window(x[i - half:i + half + 1])
    return y


def zero_crossings(x, threshold):
    crossings = 0
    longest = 0
    since = 0
    for i in range(1, len(x)):
        since += 1
        if abs(x[i] - x[i - 1]) < threshold:
            continue
        if x[i - 1] < 0 <= x[i] or x[i - 1] >= 0 > x[i]:
            crossings += 1
            if since > longest:
                longest = since
            since = 0
    return crossings, longest


def goertzel(x, frequencies, rate):
    power = np.zeros(len(frequencies))
    for k, f in enumerate(frequencies):
        w = 2.0 * math.pi * f / rate
        coefficient = 2.0 * math.cos(w)
        s1 = s2 = 0.0
        for sample in x:
            s0 = sample + coefficient * s1 - s2
            s2 = s1
            s1 = s0
        power[k] = s1 * s1 + s2 * s2 - coefficient * s1 * s2
    return power


def echo_canceller(x, desired, taps, mu):
    w = np.zeros(taps)
    error = np.zeros(len(x))
    for n in range(taps, len(x)):
        window = x[n - taps:n]
        y = w @ window
        error[n] = desired[n] - y
        w += 2 * mu * error[n] * window
    return w, error


def run_lengths(x):
    values = np.empty_like(x)
    counts = np.zeros(len(x), dtype=np.int64)
    runs = 0
    i = 0
    while i < len(x):
        j = i + 1
        while j < len(x) and x[j] == x[i]:
            j += 1
        values[runs] = x[i]
        counts[runs] = j - i
        runs += 1
        i = j
    return values[:runs], counts[:runs]


def fft_radix2(x):
    n = len(x)
    y = x.astype(np.complex128)
    j = 0
    for i in range(1, n):
        bit = n >> 1
        while j & bit:
            j ^= bit
            bit >>= 1
        j |= bit
        if i < j:
            y[i], y[j] = y[j], y[i]
    size = 2
    while size <= n:
        step = np.exp(-2j * np.pi / size)
        for start in range(0, n, size):
            w = 1.0 + 0.0j
            for k in range(size // 2):
                even = y[start + k]
                odd = w * y[start + k + size // 2]
                y[start + k] = even + odd
                y[start + k + size // 2] = even - odd
                w *= step
        size *= 2
    return y


def compressor(x, attack, release, threshold, ratio):
    envelope = 0.0
    y = np.zeros_like(x)
    for i in range(x.size):
        level = abs(x[i])
        if level > envelope:
            envelope = attack * envelope + (1 - attack) * level
        else:
            envelope = release * envelope + (1 - release) * level
        gain = 1.0
        if envelope > threshold:
            gain = (threshold + (envelope - threshold) / ratio) / envelope
        y[i] = gain * x[i]
    return y


def short_time_energy(x, window, hop):
    frames = (len(x) - len(window)) // hop + 1
    energy = np.zeros(frames)
    centroid = np.zeros(frames)
    index = np.arange(len(window))
    for f in range(frames):
        piece = x[f * hop:f * hop + len(window)] * window
        squares = piece ** 2
        energy[f] = squares.sum()
        if energy[f] > 0:
            centroid[f] = (index * squares).sum() / energy[f]
    return energy, centroid


PROGRAMS = (
    Own(fir_filter, lambda g, n: (g.normal(size=n), g.random(31) / 31), 15000, 50),
    Own(exponential_average, lambda g, n: (g.normal(size=n), 0.1), 100000, 9),
    Own(median_filter, lambda g, n: (g.random(n), 7), 4000, 20),
    Own(zero_crossings, lambda g, n: (np.sin(np.arange(n) / 5) + 0.1 * g.normal(size=n), 0.01), 60000, 40),
    Own(goertzel, lambda g, n: (np.sin(np.arange(n) / 5), np.linspace(100, 900, 8), 8000.0), 8000, 20),
    Own(echo_canceller, lambda g, n: (g.normal(size=n), g.normal(size=n), 32, 0.001), 6000, 50),
    Own(run_lengths, lambda g, n: (np.repeat(g.integers(0, 9, n), g.integers(1, 6, n)),), 20000, 8),
    Own(fft_radix2, lambda g, n: (g.normal(size=n),), 2048, 8),
    Own(compressor, lambda g, n: (g.normal(size=n) * 0.5, 0.9, 0.999, 0.5, 4.0), 50000, 20),
    Own(short_time_energy, lambda g, n: (g.normal(size=n), np.hanning(256), 64), 150000, 600),
)
