"""Dynamic programming over tables and rows."""

import numpy as np

from bench.loop_programs.own.program import Own


def edit_distance_rows(a, b):
    previous = np.arange(len(b) + 1)
    current = np.zeros(len(b) + 1, dtype=int)
    for i in range(len(a)):
        current[0] = i + 1
        for j in range(len(b)):
            cost = 0 if a[i] == b[j] else 1
            current[j + 1] = min(previous[j + 1] + 1, current[j] + 1, previous[j] + cost)
        previous, current = current, previous
    return previous[-1]


def coin_change(coins, amount):
    ways = np.zeros(amount + 1, dtype=np.int64)
    ways[0] = 1
    fewest = np.full(amount + 1, amount + 1)
    fewest[0] = 0
    for coin in coins:
        for value in range(coin, amount + 1):
            ways[value] = (ways[value] + ways[value - coin]) % 1000000007
            if fewest[value - coin] + 1 < fewest[value]:
                fewest[value] = fewest[value - coin] + 1
    return ways[amount], fewest


def matrix_chain(dims):
    n = len(dims) - 1
    cost = np.zeros((n, n))
    split = np.zeros((n, n), dtype=int)
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            cost[i, j] = np.inf
            for k in range(i, j):
                q = cost[i, k] + cost[k + 1, j] + dims[i] * dims[k + 1] * dims[j + 1]
                if q < cost[i, j]:
                    cost[i, j] = q
                    split[i, j] = k
    return cost[0, n - 1], split


def longest_increasing(x):
    best = np.ones(len(x), dtype=int)
    for i, xi in enumerate(x):
        for j in range(i):
            if x[j] < xi and best[j] + 1 > best[i]:
                best[i] = best[j] + 1
    return best.max()


def knapsack_slices(weights, values, capacity):
    best = np.zeros(capacity + 1)
    for w, v in zip(weights, values, strict=True):
        best[w:] = np.maximum(best[w:], best[:-w] + v)
    return best[capacity]


def optimal_search_tree(p):
    n = len(p)
    prefix = np.concatenate(([0.0], np.cumsum(p)))
    cost = np.zeros((n + 1, n + 1))
    root = np.zeros((n + 1, n + 1), dtype=np.int32)
    for size in range(1, n + 1):
        for i in range(0, n - size + 1):
            j = i + size
            best = 1e30
            for r in range(i, j):
                c = cost[i, r] + cost[r + 1, j]
                if c < best:
                    best = c
                    root[i, j] = r
            cost[i, j] = best + prefix[j] - prefix[i]
    return cost[0, n], root


def maximum_rectangle(m):
    rows, cols = m.shape
    best = -np.inf
    bounds = (0, 0, 0, 0)
    for top in range(rows):
        sums = np.zeros(cols)
        for bottom in range(top, rows):
            sums += m[bottom]
            running = 0.0
            left = 0
            for j in range(cols):
                running += sums[j]
                if running > best:
                    best = running
                    bounds = (top, bottom, left, j)
                if running < 0:
                    running = 0.0
                    left = j + 1
    return best, bounds


def banded_warping(a, b, band):
    n, m = len(a), len(b)
    d = np.full((n + 1, m + 1), np.inf)
    d[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(max(1, i - band), min(m, i + band) + 1):
            gap = (a[i - 1] - b[j - 1]) ** 2
            d[i, j] = gap + min(d[i - 1, j], d[i, j - 1], d[i - 1, j - 1])
    return np.sqrt(d[n, m])


def seam_energy(image):
    cost = np.zeros_like(image)
    cost[0] = image[0]
    for i in range(1, image.shape[0]):
        cost[i] = image[i] + cost[i - 1]
        cost[i, 1:] = np.minimum(cost[i, 1:], image[i, 1:] + cost[i - 1, :-1])
        cost[i, :-1] = np.minimum(cost[i, :-1], image[i, :-1] + cost[i - 1, 1:])
    seam = np.zeros(image.shape[0], dtype=np.int64)
    seam[-1] = np.argmin(cost[-1])
    for i in range(image.shape[0] - 2, -1, -1):
        j = seam[i + 1]
        low = max(j - 1, 0)
        seam[i] = low + np.argmin(cost[i, low:j + 2])
    return seam


PROGRAMS = (
    Own(edit_distance_rows, lambda g, n: (g.integers(0, 26, n), g.integers(0, 26, n)), 250, 6),
    Own(coin_change, lambda g, n: (np.array([1, 2, 5, 10, 20, 50, 100, 200]), n), 6000, 30),
    Own(matrix_chain, lambda g, n: (g.integers(5, 60, n + 1),), 60, 5),
    Own(longest_increasing, lambda g, n: (g.random(n),), 700, 8),
    Own(knapsack_slices, lambda g, n: (g.integers(1, 60, n), g.random(n), 3000), 1500, 9),
    Own(optimal_search_tree, lambda g, n: (g.random(n) / n,), 80, 5),
    Own(maximum_rectangle, lambda g, n: (g.normal(size=(n, 60)),), 50, 4),
    Own(banded_warping, lambda g, n: (np.sin(np.arange(n) / 9), np.sin(np.arange(n) / 8), 20), 1200, 9),
    Own(seam_energy, lambda g, n: (g.random((n, 100)),), 1000, 9),
)
