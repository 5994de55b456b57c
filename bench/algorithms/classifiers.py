"""Linear classifiers: several classes by trust region, by hinge, and by Bayes' rule."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def multinomial(X: Array, Y: Array, lam: float = 1e-3, steps: int = 10,
                inner: int = 10) -> tuple[Array, float]:
    """Several classes: conjugate gradients within a trust region; `Y` has a one in each row."""
    n, m = X.shape
    k = Y.shape[1]
    B = np.zeros((m, k))
    scores = X @ B
    P = np.exp(scores - scores.max(axis=1, keepdims=True))
    P = P / P.sum(axis=1, keepdims=True)
    loss = -(Y * np.log(P)).sum() / n + 0.5 * lam * (B ** 2).sum()
    delta = 1.0
    for _ in range(steps):
        G = X.T @ (P - Y) / n + lam * B
        if np.linalg.norm(G) < 1e-8:
            break
        S = np.zeros_like(B)
        R = -G
        D = R
        rr = (R * R).sum()
        for _ in range(inner):
            Q = P * (X @ D)
            HD = X.T @ (Q - P * Q.sum(axis=1, keepdims=True)) / n + lam * D
            alpha = rr / (D * HD).sum()
            S_new = S + alpha * D
            if np.sqrt((S_new ** 2).sum()) > delta:
                dd, sd, ss = (D * D).sum(), (S * D).sum(), (S * S).sum()
                root = np.sqrt(sd ** 2 + dd * (delta ** 2 - ss))
                S = S + (root - sd) / dd * D
                R = R - (root - sd) / dd * HD
                break
            S = S_new
            R = R - alpha * HD
            rr_new = (R * R).sum()
            if rr_new < 1e-12:
                break
            D = R + rr_new / rr * D
            rr = rr_new
        predicted = -0.5 * ((S * G).sum() - (S * R).sum())
        B_new = B + S
        scores = X @ B_new
        scores -= scores.max(axis=1, keepdims=True)
        P_new = np.exp(scores)
        P_new /= P_new.sum(axis=1, keepdims=True)
        loss_new = -(Y * np.log(P_new)).sum() / n + 0.5 * lam * (B_new ** 2).sum()
        rho = (loss - loss_new) / predicted
        if rho > 1e-4:
            B, P, loss = B_new, P_new, loss_new
        if rho < 0.25:
            delta *= 0.5
        elif rho > 0.75:
            delta *= 2.0
    return B, float(loss)


def svm_of_classes(X: Array, Y: Array, lam: float = 1e-2, steps: int = 30) -> tuple[Array, float]:
    """One squared hinge for each class, by accelerated gradients; `Y` holds -1 and +1."""
    n, m = X.shape
    W = np.zeros((m, Y.shape[1]))
    V = W
    rate = 1 / (lam + (X ** 2).sum() / n)
    t = 1.0
    objective = 0.0
    for _ in range(steps):
        out = np.maximum(1 - Y * (X @ V), 0)
        G = lam * V - X.T @ (Y * out) / n
        W_new = V - rate * G
        t_new = (1 + np.sqrt(1 + 4 * t * t)) / 2
        V = W_new + (t - 1) / t_new * (W_new - W)
        W, t = W_new, t_new
        objective = 0.5 * (out ** 2).sum() / n + 0.5 * lam * (V ** 2).sum()
    return W, float(objective)


def naive_bayes(X: Array, labels: Array, k: int) -> tuple[Array, float]:
    """Gaussian naive Bayes: fit, then the mean log-likelihood of the classes that it predicts."""
    n, m = X.shape
    means = np.empty((k, m))
    variances = np.empty((k, m))
    priors = np.empty(k)
    for c in range(k):
        members = X[labels == c]
        priors[c] = len(members) / n
        means[c] = members.mean(axis=0)
        variances[c] = members.var(axis=0) + 1e-9
    scores = np.empty((n, k))
    for c in range(k):
        scores[:, c] = np.log(priors[c]) - 0.5 * (
            np.log(2 * np.pi * variances[c]) + (X - means[c]) ** 2 / variances[c]).sum(axis=1)
    top = scores.max(axis=1)
    evidence = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
    return means, float(evidence.mean())


def labelled(rows: int, dtype: Any, rng: np.random.Generator, columns: int = 50,
             k: int = 5) -> tuple[Array, Array]:
    """Return features and labels from 0 to k - 1."""
    X = rng.standard_normal((rows, columns))
    labels = (X @ rng.standard_normal((columns, k)) + rng.standard_normal((rows, k))).argmax(axis=1)
    return X.astype(dtype), labels


def classes(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return features and a one in each row."""
    X, labels = labelled(rows, dtype, rng)
    return X, np.eye(5, dtype=dtype)[labels]


def sides(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return features and, for each class, +1 or -1."""
    X, Y = classes(rows, dtype, rng)
    return X, 2 * Y - 1


def kinds(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return features, labels and how many there are."""
    return *labelled(rows, dtype, rng, 30), 5
