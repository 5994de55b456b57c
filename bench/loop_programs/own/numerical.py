"""Numerical methods."""

import math

import numpy as np

from bench.loop_programs.own.program import Own


def integrand(x):
    return math.exp(-x * x) * math.cos(3 * x)


def simpson(a, b, n):
    h = (b - a) / n
    total = integrand(a) + integrand(b)
    for i in range(1, n):
        if i % 2 == 0:
            total += 2 * integrand(a + i * h)
        else:
            total += 4 * integrand(a + i * h)
    return total * h / 3


def newton_fractal(size, limit):
    out = np.zeros((size, size), dtype=np.int64)
    for i in range(size):
        for j in range(size):
            z = complex(-2 + 4 * j / size, -2 + 4 * i / size)
            for k in range(limit):
                if abs(z) < 1e-9:
                    break
                step = (z ** 3 - 1) / (3 * z * z)
                z -= step
                if abs(step) < 1e-6:
                    break
            out[i, j] = k
    return out


def lorenz_rates(state):
    x, y, z = state
    return np.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])


def runge_kutta(state, dt, steps):
    out = np.zeros((steps, 3))
    for n in range(steps):
        k1 = lorenz_rates(state)
        k2 = lorenz_rates(state + dt / 2 * k1)
        k3 = lorenz_rates(state + dt / 2 * k2)
        k4 = lorenz_rates(state + dt * k3)
        state = state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        out[n] = state
    return out


def romberg(x, y, levels):
    table = np.zeros((levels, levels))
    n = len(x) - 1
    for k in range(levels):
        step = n >> k
        table[k, 0] = 0.0
        for i in range(0, n, step):
            table[k, 0] += 0.5 * (x[i + step] - x[i]) * (y[i] + y[i + step])
        for j in range(1, k + 1):
            table[k, j] = table[k, j - 1] + (table[k, j - 1] - table[k - 1, j - 1]) / (4 ** j - 1)
    return table


def kepler(mean_anomalies, eccentricity):
    out = np.empty_like(mean_anomalies)
    iterations = 0
    for i, m in enumerate(mean_anomalies):
        e = m if eccentricity < 0.8 else math.pi
        while True:
            delta = (e - eccentricity * math.sin(e) - m) / (1 - eccentricity * math.cos(e))
            e -= delta
            iterations += 1
            if abs(delta) < 1e-12:
                break
        out[i] = e
    return out, iterations


def adaptive_oscillator(t_end, tolerance):
    t, x, v = 0.0, 2.0, 0.0
    h = 0.01
    accepted = rejected = 0
    times = np.zeros(100000)
    while t < t_end:
        ax = v
        av = 5.0 * (1 - x * x) * v - x
        mx = x + 0.5 * h * ax
        mv = v + 0.5 * h * av
        bx = mv
        bv = 5.0 * (1 - mx * mx) * mv - mx
        error = h * math.sqrt((bx - ax) ** 2 + (bv - av) ** 2)
        if error > tolerance:
            h *= max(0.2, 0.9 * math.sqrt(tolerance / error))
            rejected += 1
            continue
        x += h * bx
        v += h * bv
        t += h
        times[accepted] = t
        accepted += 1
        if error > 0:
            h *= min(2.0, 0.9 * math.sqrt(tolerance / error))
    return x, v, times[:accepted], rejected


def legendre(x, degree):
    previous = np.ones_like(x)
    current = x.copy()
    sums = previous + current
    for n in range(1, degree):
        following = ((2 * n + 1) * x * current - n * previous) / (n + 1)
        previous, current = current, following
        sums += current
    return sums


def cubic_spline(x, y, at):
    n = len(x)
    h = np.diff(x)
    second = np.zeros(n)
    u = np.zeros(n)
    for i in range(1, n - 1):
        ratio = h[i - 1] / (h[i - 1] + h[i])
        p = ratio * second[i - 1] + 2
        second[i] = (ratio - 1) / p
        slope = (y[i + 1] - y[i]) / h[i] - (y[i] - y[i - 1]) / h[i - 1]
        u[i] = (6 * slope / (h[i - 1] + h[i]) - ratio * u[i - 1]) / p
    for i in range(n - 2, -1, -1):
        second[i] = second[i] * second[i + 1] + u[i]
    out = np.zeros(len(at))
    for k in range(len(at)):
        low, high = 0, n - 1
        while high - low > 1:
            middle = (low + high) // 2
            if x[middle] > at[k]:
                high = middle
            else:
                low = middle
        width = x[high] - x[low]
        a = (x[high] - at[k]) / width
        b = (at[k] - x[low]) / width
        out[k] = a * y[low] + b * y[high]
        out[k] += ((a ** 3 - a) * second[low] + (b ** 3 - b) * second[high]) * width ** 2 / 6
    return out


def estimate_pi(samples):
    seed = 12345
    inside = 0
    for _ in range(samples):
        seed = (1664525 * seed + 1013904223) % 4294967296
        x = seed / 4294967296
        seed = (1664525 * seed + 1013904223) % 4294967296
        y = seed / 4294967296
        if x * x + y * y <= 1:
            inside += 1
    return 4 * inside / samples


def pascal_rows(n, modulus):
    row = np.zeros(n, dtype=np.int64)
    row[0] = 1
    odd = 0
    for k in range(1, n):
        row[1:k + 1] = (row[1:k + 1] + row[:k]) % modulus
        odd += np.count_nonzero(row % 2)
    return row, odd


def poisson(u, f, h, tolerance):
    sweeps = 0
    while True:
        change = 0.0
        for i in range(1, u.shape[0] - 1):
            for j in range(1, u.shape[1] - 1):
                new = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - h * h * f[i, j])
                change = max(change, abs(new - u[i, j]))
                u[i, j] = new
        sweeps += 1
        if change < tolerance or sweeps == 20:
            return sweeps, change


def rosenbrock(x):
    total = 0.0
    for i in range(len(x) - 1):
        total += 100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2
    return total


def numerical_descent(x, rate, steps):
    h = 1e-6
    values = []
    for _ in range(steps):
        gradient = np.zeros_like(x)
        for i in range(len(x)):
            up = x.copy()
            down = x.copy()
            up[i] += h
            down[i] -= h
            gradient[i] = (rosenbrock(up) - rosenbrock(down)) / (2 * h)
        x = x - rate * gradient
        values.append(rosenbrock(x))
    return x, values


def upwind_advection(u, velocity, dt, dx, steps):
    for _ in range(steps):
        old = u.copy()
        for i in range(1, len(u) - 1):
            if velocity[i] > 0:
                u[i] = old[i] - velocity[i] * dt / dx * (old[i] - old[i - 1])
            else:
                u[i] = old[i] - velocity[i] * dt / dx * (old[i + 1] - old[i])
        u[0] = u[-2]
        u[-1] = u[1]
    return u


PROGRAMS = (
    Own(simpson, lambda g, n: (0.0, 5.0, n), 40000, 10),
    Own(newton_fractal, lambda g, n: (n, 30), 45, 4),
    Own(runge_kutta, lambda g, n: (np.array([1.0, 1.0, 1.0]), 0.01, n), 1500, 4),
    Own(romberg, lambda g, n: (np.linspace(0, 3, n + 1), np.sin(np.linspace(0, 3, n + 1)),
        int(math.log2(n)) + 1), 16384, 64),
    Own(kepler, lambda g, n: (np.linspace(0, 6, n), 0.3), 6000, 5),
    Own(adaptive_oscillator, lambda g, n: (float(n), 1e-3), 400, 1),
    Own(legendre, lambda g, n: (np.linspace(-1, 1, 1000), n), 1000, 4),
    Own(cubic_spline, lambda g, n: (np.arange(n) * 1.0, np.sin(np.arange(n) / 4),
        g.random(4 * n) * (n - 1)), 1000, 6),
    Own(estimate_pi, lambda g, n: (n,), 80000, 10),
    Own(pascal_rows, lambda g, n: (n, 1000007), 1200, 6),
    Own(poisson, lambda g, n: (g.random((n, n)), g.random((n, n)), 1 / n, 1e-6), 45, 5),
    Own(numerical_descent, lambda g, n: (g.random(12), 0.0005, n), 80, 2),
    Own(upwind_advection, lambda g, n: (np.sin(np.arange(500) / 20), np.cos(np.arange(500) / 90), 0.01,
        0.1, n), 60, 3),
)
