"""Linear algebra by loops and slices."""

import numpy as np

from bench.loop_programs.own.program import Own


def lu_pivoted(a):
    n = len(a)
    p = np.arange(n)
    for k in range(n - 1):
        pivot = k + np.argmax(np.abs(a[k:, k]))
        if pivot != k:
            a[[k, pivot]] = a[[pivot, k]]
            p[[k, pivot]] = p[[pivot, k]]
        for i in range(k + 1, n):
            a[i, k] /= a[k, k]
            a[i, k + 1:] -= a[i, k] * a[k, k + 1:]
    return p


def jacobi_solve(a, b, tolerance, limit):
    n = len(b)
    x = np.zeros(n)
    for iteration in range(limit):
        new = np.zeros(n)
        for i in range(n):
            s = b[i]
            for j in range(n):
                if j != i:
                    s -= a[i, j] * x[j]
            new[i] = s / a[i, i]
        if np.max(np.abs(new - x)) < tolerance:
            return new, iteration
        x = new
    return x, limit


def householder(a):
    r = a.copy()
    m, n = r.shape
    q = np.eye(m)
    for k in range(n):
        x = r[k:, k]
        v = x.copy()
        v[0] += np.sign(x[0]) * np.sqrt(x @ x)
        v /= np.sqrt(v @ v)
        r[k:, k:] -= 2 * np.outer(v, v @ r[k:, k:])
        q[:, k:] -= 2 * np.outer(q[:, k:] @ v, v)
    return q, r


def power_iteration(a, tolerance):
    v = np.ones(len(a)) / np.sqrt(len(a))
    value = 0.0
    rounds = 0
    while rounds < 2000:
        w = a @ v
        new = np.sqrt(np.sum(w * w))
        v = w / new
        rounds += 1
        if abs(new - value) < tolerance:
            break
        value = new
    return new, v, rounds


def cholesky_dots(a):
    n = a.shape[0]
    lower = np.zeros_like(a)
    for i in range(n):
        for j in range(i + 1):
            s = a[i, j] - np.dot(lower[i, :j], lower[j, :j])
            if i == j:
                lower[i, i] = np.sqrt(s)
            else:
                lower[i, j] = s / lower[j, j]
    return lower


def thomas(a, b, c, d):
    n = len(d)
    for i in range(1, n):
        w = a[i] / b[i - 1]
        b[i] -= w * c[i - 1]
        d[i] -= w * d[i - 1]
    x = np.empty(n)
    x[-1] = d[-1] / b[-1]
    for i in reversed(range(n - 1)):
        x[i] = (d[i] - c[i] * x[i + 1]) / b[i]
    return x


def steepest_descent(a, b, steps):
    x = np.zeros_like(b)
    residuals = np.zeros(steps)
    for k in range(steps):
        r = b - a @ x
        residuals[k] = r @ r
        if residuals[k] < 1e-20:
            break
        x = x + (r @ r) / (r @ a @ r) * r
    return x, residuals


def jacobi_eigenvalues(a, sweeps):
    n = len(a)
    for _ in range(sweeps):
        for p in range(n - 1):
            for q in range(p + 1, n):
                if abs(a[p, q]) < 1e-12:
                    continue
                theta = (a[q, q] - a[p, p]) / (2 * a[p, q])
                t = 1 / (abs(theta) + np.sqrt(theta * theta + 1))
                if theta < 0:
                    t = -t
                c = 1 / np.sqrt(t * t + 1)
                s = t * c
                for k in range(n):
                    akp = a[k, p]
                    akq = a[k, q]
                    a[k, p] = c * akp - s * akq
                    a[k, q] = s * akp + c * akq
                for k in range(n):
                    apk = a[p, k]
                    aqk = a[q, k]
                    a[p, k] = c * apk - s * aqk
                    a[q, k] = s * apk + c * aqk
    return np.sort(np.diag(a))


def sparse_product(data, indices, indptr, x):
    y = np.zeros(len(indptr) - 1)
    z = np.zeros(len(x))
    for i in range(len(y)):
        for k in range(indptr[i], indptr[i + 1]):
            y[i] += data[k] * x[indices[k]]
            z[indices[k]] += data[k] * x[i]
    return y, z


def triangular_inverse(lower):
    n = len(lower)
    inverse = np.zeros((n, n))
    for j in range(n):
        inverse[j, j] = 1 / lower[j, j]
        for i in range(j + 1, n):
            inverse[i, j] = -(lower[i, j:i] @ inverse[j:i, j]) / lower[i, i]
    return inverse


def blocked_product(a, b, block):
    n = len(a)
    c = np.zeros((n, n))
    for i in range(0, n, block):
        for j in range(0, n, block):
            for k in range(0, n, block):
                c[i:i + block, j:j + block] += a[i:i + block, k:k + block] @ b[k:k + block, j:j + block]
    return c


def symmetric(g, n):
    a = g.normal(size=(n, n))
    return a + a.T


def definite(g, n):
    a = g.random((n, n))
    return a @ a.T + n * np.eye(n)


PROGRAMS = (
    Own(lu_pivoted, lambda g, n: (g.random((n, n)),), 100, 5),
    Own(jacobi_solve, lambda g, n: (g.random((n, n)) + n * np.eye(n), g.random(n), 1e-6, 50), 50, 5),
    Own(householder, lambda g, n: (g.random((n + 20, n)),), 120, 5),
    Own(power_iteration, lambda g, n: (symmetric(g, n), 1e-13), 120, 5),
    Own(cholesky_dots, lambda g, n: (definite(g, n),), 150, 5),
    Own(thomas, lambda g, n: (g.random(n), 4 + g.random(n), g.random(n), g.random(n)), 20000, 5),
    Own(steepest_descent, lambda g, n: (definite(g, 80) - 79.9 * np.eye(80), g.random(80), n), 1200, 4),
    Own(jacobi_eigenvalues, lambda g, n: (definite(g, n), 2), 24, 4),
    Own(sparse_product, lambda g, n: (g.random(8 * n), g.integers(0, n, 8 * n), np.arange(0, 8 * n + 1, 8),
                                      g.random(n)), 4000, 5),
    Own(triangular_inverse, lambda g, n: (np.tril(g.random((n, n))) + n * np.eye(n),), 150, 5),
    Own(blocked_product, lambda g, n: (g.random((n, n)), g.random((n, n)), 8), 128, 16),
)
