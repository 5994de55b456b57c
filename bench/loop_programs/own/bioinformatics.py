"""Bio-informatics: alignments, motifs, hidden Markov models, trees."""

import numpy as np

from bench.loop_programs.own.program import Own


def global_alignment(a, b, match, mismatch, gap):
    n, m = len(a), len(b)
    score = np.zeros((n + 1, m + 1), dtype=np.int32)
    score[:, 0] = gap * np.arange(n + 1)
    score[0, :] = gap * np.arange(m + 1)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            diagonal = score[i - 1, j - 1] + (match if a[i - 1] == b[j - 1] else mismatch)
            score[i, j] = max(diagonal, score[i - 1, j] + gap, score[i, j - 1] + gap)
    i, j = n, m
    gaps = 0
    identical = 0
    while i > 0 and j > 0:
        if score[i, j] == score[i - 1, j] + gap:
            i -= 1
            gaps += 1
        elif score[i, j] == score[i, j - 1] + gap:
            j -= 1
            gaps += 1
        else:
            i -= 1
            j -= 1
            if a[i] == b[j]:
                identical += 1
    return score[n, m], identical, gaps + i + j


def affine_alignment(a, b, substitution, opening, extension):
    n, m = len(a), len(b)
    best = np.zeros((n + 1, m + 1))
    up = np.full((n + 1, m + 1), -1e9)
    left = np.full((n + 1, m + 1), -1e9)
    top = 0.0
    where = (0, 0)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            up[i, j] = max(best[i - 1, j] - opening, up[i - 1, j] - extension)
            left[i, j] = max(best[i, j - 1] - opening, left[i, j - 1] - extension)
            best[i, j] = max(0.0, best[i - 1, j - 1] + substitution[a[i - 1], b[j - 1]], up[i, j], left[i, j])
            if best[i, j] > top:
                top = best[i, j]
                where = (i, j)
    return top, where


def count_kmers(sequence, k):
    counts = np.zeros(4 ** k, dtype=np.int64)
    mask = 4 ** k - 1
    code = 0
    valid = 0
    for base in sequence:
        if base > 3:
            valid = 0
            continue
        code = ((code << 2) | base) & mask
        valid += 1
        if valid >= k:
            counts[code] += 1
    return counts


def hidden_markov_forward(start, transition, emission, observed):
    alpha = start * emission[:, observed[0]]
    likelihood = np.log(alpha.sum())
    alpha /= alpha.sum()
    for t in range(1, len(observed)):
        alpha = (alpha @ transition) * emission[:, observed[t]]
        scale = alpha.sum()
        alpha /= scale
        likelihood += np.log(scale)
    return likelihood, alpha


def gc_skew(sequence, width):
    n = len(sequence) - width + 1
    skew = np.zeros(n)
    for i in range(n):
        window = sequence[i:i + width]
        g = np.count_nonzero(window == 2)
        c = np.count_nonzero(window == 1)
        if g + c == 0:
            continue
        skew[i] = (g - c) / (g + c)
    return skew


def scan_motif(sequence, weights, threshold):
    hits = []
    length = weights.shape[0]
    for start in range(len(sequence) - length + 1):
        score = 0.0
        for k in range(length):
            score += weights[k, sequence[start + k]]
        if score > threshold:
            hits.append((start, score))
    return hits


def average_linkage(distances):
    d = distances.copy()
    n = len(d)
    size = np.ones(n)
    active = np.ones(n, dtype=bool)
    merges = np.zeros((n - 1, 3))
    for step in range(n - 1):
        best = np.inf
        bi = bj = -1
        for i in range(n):
            if not active[i]:
                continue
            for j in range(i + 1, n):
                if active[j] and d[i, j] < best:
                    best = d[i, j]
                    bi, bj = i, j
        merges[step] = bi, bj, best
        for k in range(n):
            if active[k] and k != bi and k != bj:
                mean = (size[bi] * d[bi, k] + size[bj] * d[bj, k]) / (size[bi] + size[bj])
                d[bi, k] = mean
                d[k, bi] = mean
        size[bi] += size[bj]
        active[bj] = False
    return merges


def linkage_disequilibrium(genotypes):
    markers = genotypes.shape[1]
    r2 = np.eye(markers)
    for i in range(markers):
        x = genotypes[:, i] - genotypes[:, i].mean()
        for j in range(i + 1, markers):
            y = genotypes[:, j] - genotypes[:, j].mean()
            denominator = np.sqrt((x ** 2).sum() * (y ** 2).sum())
            if denominator > 0:
                r2[i, j] = r2[j, i] = ((x * y).sum() / denominator) ** 2
    return r2


PROGRAMS = (
    Own(global_alignment, lambda g, n: (g.integers(0, 4, n), g.integers(0, 4, n), 1, -1, -2), 200, 6),
    Own(affine_alignment, lambda g, n: (g.integers(0, 20, n), g.integers(0, 20, n), g.integers(-4, 8, (20,
        20)),
                                        10.0, 1.0), 150, 6),
    Own(count_kmers, lambda g, n: (g.integers(0, 5, n).astype(np.uint8).astype(np.int64), 6), 80000, 60),
    Own(hidden_markov_forward, lambda g, n: (np.full(6, 1 / 6), g.dirichlet(np.ones(6), 6),
                                             g.dirichlet(np.ones(10), 6), g.integers(0, 10, n)), 5000, 9),
    Own(gc_skew, lambda g, n: (g.integers(0, 4, n), 100), 5000, 120),
    Own(scan_motif, lambda g, n: (g.integers(0, 4, n), g.normal(size=(8, 4)), 6.0), 20000, 40),
    Own(average_linkage, lambda g, n: ((lambda p: np.abs(p[:, None] - p[None, :]))(g.random(n)),), 90, 6),
    Own(linkage_disequilibrium, lambda g, n: (g.integers(0, 3, (200, n)).astype(float),), 70, 5),
)
