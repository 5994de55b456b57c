"""Programs with explicit loops over elements, as people write them, and what they are called with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = Any


class Program(NamedTuple):
    """A function, its kind, what makes its arguments, and whether Numba compiles it as it is."""

    function: Callable[..., Any]
    kind: str
    make: Callable[[np.random.Generator], tuple[Any, ...]]
    numba: bool = True


# ------------------------------------------------------------------------------- scalar loops


def edit_distance(a: Array, b: Array) -> Any:
    n, m = len(a), len(b)
    d = np.zeros((n + 1, m + 1), dtype=np.int64)
    for i in range(n + 1):
        d[i, 0] = i
    for j in range(m + 1):
        d[0, j] = j
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            cost = 0 if a[i - 1] == b[j - 1] else 1
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + cost)
    return d[n, m]


def floyd_warshall(d: Array) -> Array:
    n = d.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if d[i, k] + d[k, j] < d[i, j]:
                    d[i, j] = d[i, k] + d[k, j]
    return d


def crc32(data: Array, table: Array) -> Any:
    crc = 0xFFFFFFFF
    for i in range(len(data)):
        crc = int(table[(crc ^ int(data[i])) & 0xFF]) ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def mandelbrot(xs: Array, ys: Array, limit: int) -> Array:
    out = np.zeros((len(ys), len(xs)), dtype=np.int32)
    for i in range(len(ys)):
        for j in range(len(xs)):
            x = y = 0.0
            k = 0
            while k < limit and x * x + y * y <= 4.0:
                x, y = x * x - y * y + xs[j], 2.0 * x * y + ys[i]
                k += 1
            out[i, j] = k
    return out


def nussinov(seq: Array) -> Array:
    n = len(seq)
    table = np.zeros((n, n), dtype=np.int32)
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            best = max(table[i, j - 1], table[i + 1, j])
            if i < j - 1:
                match = 1 if seq[i] + seq[j] == 3 else 0
                best = max(best, table[i + 1, j - 1] + match)
            else:
                best = max(best, table[i + 1, j - 1])
            for k in range(i + 1, j):
                best = max(best, table[i, k] + table[k + 1, j])
            table[i, j] = best
    return table


def cholesky(a: Array) -> Array:
    n = a.shape[0]
    for i in range(n):
        for j in range(i):
            for k in range(j):
                a[i, j] -= a[i, k] * a[j, k]
            a[i, j] /= a[j, j]
        for k in range(i):
            a[i, i] -= a[i, k] * a[i, k]
        a[i, i] = math.sqrt(a[i, i])
    return a


def lu(a: Array) -> Array:
    n = a.shape[0]
    for i in range(n):
        for j in range(i):
            s = a[i, j]
            for k in range(j):
                s -= a[i, k] * a[k, j]
            a[i, j] = s / a[j, j]
        for j in range(i, n):
            s = a[i, j]
            for k in range(i):
                s -= a[i, k] * a[k, j]
            a[i, j] = s
    return a


def particles(pos: Array, vel: Array, mass: Array, dt: float, steps: int) -> None:
    n = pos.shape[0]
    for _ in range(steps):
        for i in range(n):
            ax = ay = az = 0.0
            for j in range(n):
                dx = pos[j, 0] - pos[i, 0]
                dy = pos[j, 1] - pos[i, 1]
                dz = pos[j, 2] - pos[i, 2]
                r2 = dx * dx + dy * dy + dz * dz + 0.01
                f = mass[j] / (r2 * math.sqrt(r2))
                ax += dx * f
                ay += dy * f
                az += dz * f
            vel[i, 0] += ax * dt
            vel[i, 1] += ay * dt
            vel[i, 2] += az * dt
        for i in range(n):
            for k in range(3):
                pos[i, k] += vel[i, k] * dt


def knapsack(weights: Array, values: Array, room: int) -> Any:
    best = np.zeros(room + 1, dtype=np.int64)
    for i in range(len(weights)):
        for w in range(room, int(weights[i]) - 1, -1):
            taken = best[w - weights[i]] + values[i]
            if taken > best[w]:
                best[w] = taken
    return best[room]


def longest_common(a: Array, b: Array) -> Any:
    t = np.zeros((len(a) + 1, len(b) + 1), dtype=np.int32)
    for i in range(len(a)):
        for j in range(len(b)):
            if a[i] == b[j]:
                t[i + 1, j + 1] = t[i, j] + 1
            else:
                t[i + 1, j + 1] = max(t[i, j + 1], t[i + 1, j])
    return t[len(a), len(b)]


def product(a: Array, b: Array, c: Array) -> Array:
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            c[i, j] = s
    return c


def life(grid: Array, steps: int) -> Array:
    n, m = grid.shape[0], grid.shape[1]
    other = np.zeros((n, m), dtype=np.uint8)
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                count = 0
                for di in range(-1, 2):
                    for dj in range(-1, 2):
                        if di != 0 or dj != 0:
                            count += int(grid[i + di, j + dj])
                if count == 3 or (count == 2 and grid[i, j] == 1):
                    other[i, j] = 1
                else:
                    other[i, j] = 0
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                grid[i, j] = other[i, j]
    return grid


def sieve(n: int) -> Any:
    prime = np.ones(n, dtype=np.bool_)
    prime[0] = prime[1] = False
    count = 0
    for i in range(2, n):
        if prime[i]:
            count += 1
            j = i * i
            while j < n:
                prime[j] = False
                j += i
    return count


def insertion_sort(x: Array) -> Array:
    for i in range(1, len(x)):
        key = x[i]
        j = i - 1
        while j >= 0 and x[j] > key:
            x[j + 1] = x[j]
            j -= 1
        x[j + 1] = key
    return x


def histogram(x: Array, low: float, width: float, counts: Array) -> Array:
    for i in range(len(x)):
        k = int((x[i] - low) / width)
        if 0 <= k < len(counts):
            counts[k] += 1
    return counts


def smith_waterman(a: Array, b: Array, gap: float) -> Any:
    h = np.zeros((len(a) + 1, len(b) + 1))
    best = 0.0
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            score = h[i - 1, j - 1] + (2.0 if a[i - 1] == b[j - 1] else -1.0)
            if h[i - 1, j] - gap > score:
                score = h[i - 1, j] - gap
            if h[i, j - 1] - gap > score:
                score = h[i, j - 1] - gap
            if score < 0.0:
                score = 0.0
            h[i, j] = score
            if score > best:
                best = score
    return best


def collatz(out: Array) -> Any:
    longest = 0
    for i in range(1, len(out)):
        n, steps = i, 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        out[i] = steps
        longest = max(longest, steps)
    return longest


def drawdown(prices: Array) -> Any:
    peak = prices[0]
    worst = 0.0
    for i in range(1, len(prices)):
        if prices[i] > peak:
            peak = prices[i]
        fall = (peak - prices[i]) / peak
        if fall > worst:
            worst = fall
    return worst


def lorenz(out: Array, dt: float) -> Array:
    x, y, z = 1.0, 1.0, 1.05
    for i in range(out.shape[0]):
        dx = 10.0 * (y - x)
        dy = x * (28.0 - z) - y
        dz = x * y - 2.667 * z
        x += dx * dt
        y += dy * dt
        z += dz * dt
        out[i, 0] = x
        out[i, 1] = y
        out[i, 2] = z
    return out


def biquad(x: Array, y: Array, b0: float, b1: float, b2: float, a1: float, a2: float) -> Array:
    for i in range(2, len(x)):
        y[i] = b0 * x[i] + b1 * x[i - 1] + b2 * x[i - 2] - a1 * y[i - 1] - a2 * y[i - 2]
    return y


def time_warping(a: Array, b: Array, d: Array) -> Any:
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i, j] = abs(a[i - 1] - b[j - 1]) + min(d[i - 1, j], d[i, j - 1], d[i - 1, j - 1])
    return d[len(a), len(b)]


def viterbi(start: Array, step: Array, seen: Array, signals: Array, path: Array) -> Any:
    score = np.zeros((len(signals), len(start)))
    for s in range(len(start)):
        score[0, s] = start[s] + seen[s, signals[0]]
    for t in range(1, len(signals)):
        for s in range(len(start)):
            best = score[t - 1, 0] + step[0, s]
            at = 0
            for r in range(1, len(start)):
                if score[t - 1, r] + step[r, s] > best:
                    best = score[t - 1, r] + step[r, s]
                    at = r
            score[t, s] = best + seen[s, signals[t]]
            path[t, s] = at
    return score


def wrapped_random(out: Array, seed: int) -> Any:
    state = seed
    for i in range(len(out)):
        state = (1103515245 * state + 12345) % 2147483648
        out[i] = state / 2147483648
    return state


# ------------------------------------------------------------------------------- among array statements


def gauss_seidel(u: Array, f: Array, sweeps: int) -> Any:
    n = u.shape[0]
    norm = 0.0
    for _ in range(sweeps):
        old = u.copy()
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - f[i, j])
        norm = np.abs(u - old).max()
    return norm


def tridiagonal(low: Array, mid: Array, high: Array, right: Array) -> Array:
    n = len(mid)
    scale = np.maximum(np.abs(mid), 1.0)
    low, mid, high, right = low / scale, mid / scale, high / scale, right / scale
    for i in range(1, n):
        w = low[i] / mid[i - 1]
        mid[i] = mid[i] - w * high[i - 1]
        right[i] = right[i] - w * right[i - 1]
    x = np.zeros(n)
    x[n - 1] = right[n - 1] / mid[n - 1]
    for i in range(n - 2, -1, -1):
        x[i] = (right[i] - high[i] * x[i + 1]) / mid[i]
    return x


def gram_schmidt(a: Array) -> Array:
    q = a.copy()
    n, m = q.shape
    for j in range(m):
        for k in range(j):
            dot = 0.0
            for i in range(n):
                dot += q[i, k] * q[i, j]
            for i in range(n):
                q[i, j] -= dot * q[i, k]
        q[:, j] /= np.sqrt((q[:, j] * q[:, j]).sum())
    return q


def over_relaxation(u: Array, omega: float, sweeps: int) -> Array:
    history = np.zeros(sweeps)
    for s in range(sweeps):
        before = u.sum()
        for color in range(2):
            for i in range(1, u.shape[0] - 1):
                for j in range(1 + (i + color) % 2, u.shape[1] - 1, 2):
                    mean = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
                    u[i, j] = u[i, j] + omega * (mean - u[i, j])
        history[s] = u.sum() - before
    return history


def k_means(x: Array, centers: Array, rounds: int) -> Array:
    n, d = x.shape
    label = np.zeros(n, dtype=np.int64)
    for _ in range(rounds):
        for i in range(n):
            best = np.inf
            for c in range(centers.shape[0]):
                s = 0.0
                for k in range(d):
                    s += (x[i, k] - centers[c, k]) * (x[i, k] - centers[c, k])
                if s < best:
                    best = s
                    label[i] = c
        for c in range(centers.shape[0]):
            mine = x[label == c]
            if len(mine):
                centers[c] = mine.mean(axis=0)
    return label


def forward_solve(lower: Array, right: Array) -> Any:
    x = np.zeros_like(right)
    n = len(right)
    for i in range(n):
        s = right[i]
        for j in range(i):
            s -= lower[i, j] * x[j]
        x[i] = s / lower[i, i]
    return x, np.abs(lower @ x - right).max()


def smoothed(x: Array, alpha: float) -> Array:
    y = (x - x.mean()) / x.std()
    z = np.empty_like(y)
    z[0] = y[0]
    for i in range(1, len(y)):
        z[i] = alpha * y[i] + (1.0 - alpha) * z[i - 1]
    return z * 2.0 + 1.0


def row_elimination(a: Array) -> Array:
    n = a.shape[0]
    for k in range(n):
        for i in range(k + 1, n):
            f = a[i, k] / a[k, k]
            a[i, k + 1:] -= f * a[k, k + 1:]
            a[i, k] = f
    return a


def row_sweeps(u: Array, low: Array, mid: Array, high: Array) -> Array:
    n = u.shape[0]
    for i in range(1, n):
        w = low[i] / mid[i - 1]
        mid[i] -= w * high[i - 1]
        u[i, :] -= w * u[i - 1, :]
    u[n - 1, :] /= mid[n - 1]
    for i in range(n - 2, -1, -1):
        u[i, :] = (u[i, :] - high[i] * u[i + 1, :]) / mid[i]
    return u


def heat(u: Array, steps: int, c: float) -> Any:
    total = 0.0
    for _ in range(steps):
        old = u.copy()
        for i in range(1, u.shape[0] - 1):
            for j in range(1, u.shape[1] - 1):
                u[i, j] = old[i, j] + c * (old[i - 1, j] + old[i + 1, j] + old[i, j - 1] + old[i, j + 1]
                                           - 4.0 * old[i, j])
        total += u.sum()
    return total


def conjugate_gradient(values: Array, columns: Array, starts: Array, b: Array, steps: int) -> Array:
    x = np.zeros_like(b)
    r = b.copy()
    p = r.copy()
    ap = np.zeros_like(b)
    rr = (r * r).sum()
    for _ in range(steps):
        for i in range(len(b)):
            s = 0.0
            for k in range(starts[i], starts[i + 1]):
                s += values[k] * p[columns[k]]
            ap[i] = s
        step = rr / (p * ap).sum()
        x = x + step * p
        r = r - step * ap
        new = (r * r).sum()
        p = r + (new / rr) * p
        rr = new
    return x


def page_rank(starts: Array, targets: Array, degree: Array, rounds: int) -> Array:
    n = len(degree)
    rank = np.full(n, 1.0 / n)
    for _ in range(rounds):
        new = np.full(n, 0.15 / n)
        for i in range(n):
            share = 0.85 * rank[i] / degree[i]
            for k in range(starts[i], starts[i + 1]):
                new[targets[k]] += share
        rank = new / new.sum()
    return rank


# ------------------------------------------------------------------------------- kept by Python


def counted_words(x: Array) -> Any:
    counts: dict[int, int] = {}
    for i in range(len(x)):
        counts[int(x[i])] = counts.get(int(x[i]), 0) + 1
    return sorted(counts.items())


def collected(x: Array) -> Any:
    found = []
    for i in range(1, len(x) - 1):
        if x[i] > x[i - 1] and x[i] > x[i + 1]:
            found.append(i)
    return found


def by_exponential(x: Array) -> Any:
    total = 0.0
    for i in range(len(x)):
        total += np.exp(-x[i] * x[i])
    return total


def large_integers(x: Array) -> Any:
    state = 1
    for i in range(len(x)):
        state = state * 3 + int(x[i])
    return state


def wrapping(x: Array, out: Array) -> Any:
    with np.errstate(over="ignore"):
        h = np.uint32(2166136261)
        for i in range(len(x)):
            h = (h ^ x[i]) * np.uint32(16777619)
            out[i] = h
    return h


def guarded(x: Array) -> Any:
    good = 0
    for i in range(len(x)):
        try:
            good += 1 if math.log(x[i]) > 0.5 else 0
        except ValueError:
            good -= 1
    return good


def whole_rows(a: Array, b: Array) -> Array:
    for i in range(1, a.shape[0]):
        b[i] = 0.5 * b[i - 1] + a[i]
    return b


# ------------------------------------------------------------------------------- arguments


def _letters(g: np.random.Generator, n: int) -> Array:
    return g.integers(0, 4, n)


def _definite(g: np.random.Generator, n: int) -> Array:
    a = g.random((n, n))
    return a @ a.T + n * np.eye(n)


def _sparse(g: np.random.Generator, n: int, each: int) -> tuple[Array, ...]:
    starts = np.arange(0, n * each + 1, each)
    columns = np.concatenate([np.sort(g.choice(n, each, replace=False)) for _ in range(n)])
    values = -g.random(n * each) / each
    for i in range(n):
        columns[i * each] = i
        values[i * each] = 4.0
    return values, columns, starts


def _table() -> Array:
    made = []
    for n in range(256):
        for _ in range(8):
            n = 0xEDB88320 ^ (n >> 1) if n & 1 else n >> 1
        made.append(n)
    return np.array(made, dtype=np.uint32)


def _distances(g: np.random.Generator) -> Array:
    d = g.random((70, 70)) * 10
    d[g.random((70, 70)) < 0.5] = np.inf
    return d


SCALAR = (
    Program(edit_distance, "scalar", lambda g: (_letters(g, 300), _letters(g, 280))),
    Program(floyd_warshall, "scalar", lambda g: (_distances(g),)),
    Program(crc32, "scalar", lambda g: (g.integers(0, 256, 100_000).astype(np.uint8), _table())),
    Program(mandelbrot, "scalar", lambda g: (np.linspace(-2, 0.5, 60), np.linspace(-1, 1, 50), 100)),
    Program(nussinov, "scalar", lambda g: (_letters(g, 80),)),
    Program(cholesky, "scalar", lambda g: (_definite(g, 160),)),
    Program(lu, "scalar", lambda g: (_definite(g, 160),)),
    Program(particles, "scalar", lambda g: (g.random((60, 3)), g.random((60, 3)), g.random(60), 0.01, 5)),
    Program(knapsack, "scalar", lambda g: (g.integers(1, 50, 60), g.integers(1, 99, 60), 2000)),
    Program(longest_common, "scalar", lambda g: (_letters(g, 300), _letters(g, 300))),
    Program(product, "scalar", lambda g: (g.random((60, 60)), g.random((60, 60)), np.zeros((60, 60)))),
    Program(life, "scalar", lambda g: (g.integers(0, 2, (50, 50)).astype(np.uint8), 4)),
    Program(sieve, "scalar", lambda g: (200_000,)),
    Program(insertion_sort, "scalar", lambda g: (g.random(600),)),
    Program(histogram, "scalar", lambda g: (g.normal(size=100_000), -4.0, 0.1, np.zeros(80, dtype=np.int64))),
    Program(smith_waterman, "scalar", lambda g: (_letters(g, 300), _letters(g, 300), 1.0)),
    Program(collatz, "scalar", lambda g: (np.zeros(4000, dtype=np.int64),)),
    Program(drawdown, "scalar", lambda g: (100 + g.random(200_000),)),
    Program(lorenz, "scalar", lambda g: (np.zeros((50_000, 3)), 0.01)),
    Program(biquad, "scalar", lambda g: (
        g.normal(size=100_000), np.zeros(100_000), 0.2, 0.3, 0.2, -0.5, 0.2)),
    Program(time_warping, "scalar", lambda g: (g.random(300), g.random(300), _bordered(301))),
    Program(viterbi, "scalar", lambda g: (
        g.random(12), g.random((12, 12)), g.random((12, 4)), _letters(g, 500),
        np.zeros((500, 12), dtype=np.int64))),
    Program(wrapped_random, "scalar", lambda g: (np.zeros(100_000), 12345)),
)


def _bordered(n: int) -> Array:
    d = np.full((n, n), np.inf)
    d[0, 0] = 0.0
    return d


MIXED = (
    Program(gauss_seidel, "mixed", lambda g: (g.random((120, 120)), g.random((120, 120)) * 0.01, 10)),
    Program(tridiagonal, "mixed", lambda g: (
        g.random(100_000), 4 + g.random(100_000), g.random(100_000), g.random(100_000))),
    Program(gram_schmidt, "mixed", lambda g: (g.random((200, 30)),)),
    Program(row_elimination, "mixed", lambda g: (_definite(g, 120),)),
    Program(row_sweeps, "mixed", lambda g: (
        g.random((300, 60)), g.random(300), 4 + g.random(300), g.random(300))),
    Program(over_relaxation, "mixed", lambda g: (g.random((100, 100)), 1.5, 10)),
    Program(k_means, "mixed", lambda g: (g.random((2000, 4)), g.random((8, 4)), 3)),
    Program(forward_solve, "mixed", lambda g: (
        np.tril(g.random((400, 400))) + 4 * np.eye(400), g.random(400))),
    Program(smoothed, "mixed", lambda g: (g.random(200_000), 0.1)),
    Program(heat, "mixed", lambda g: (g.random((100, 100)), 10, 0.1)),
    Program(conjugate_gradient, "mixed", lambda g: (*_sparse(g, 2000, 8), g.random(2000), 10)),
    Program(page_rank, "mixed", lambda g: (
        np.arange(0, 20_001, 10), g.integers(0, 2000, 20_000), np.full(2000, 10), 10)),
)
REFUSED = (
    Program(counted_words, "kept", lambda g: (g.integers(0, 50, 50_000),), False),
    Program(collected, "kept", lambda g: (g.random(100_000),), False),
    Program(by_exponential, "kept", lambda g: (g.random(50_000),), False),
    Program(large_integers, "kept", lambda g: (g.integers(0, 9, 5_000),), False),
    Program(wrapping, "kept", lambda g: (g.integers(0, 9, 50_000).astype(np.uint32),
                                         np.zeros(50_000, dtype=np.uint32)), False),
    Program(guarded, "kept", lambda g: (g.normal(size=100_000) + 2,), False),
    Program(whole_rows, "kept", lambda g: (g.random((2000, 300)), np.zeros((2000, 300))), False),
)
PROGRAMS = SCALAR + MIXED + REFUSED
