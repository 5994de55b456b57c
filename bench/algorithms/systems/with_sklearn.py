"""Estimators of scikit-learn that learn about the same: for orientation, not the same steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import NMF, PCA
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.mixture import GaussianMixture
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from bench.algorithms.systems.entered import Entered, NotHere


def _kmeans(X: Any, starts: Any) -> Any:
    return [KMeans(len(C), init=C, n_init=1, max_iter=20, tol=0).fit(X) for C in starts]


def _nmf(X: Any, W: Any, H: Any, loss: str) -> Any:
    model = NMF(H.shape[0], init="custom", solver="mu", beta_loss=loss, max_iter=20, tol=0)
    return model.fit_transform(X, W=W.copy(), H=H.copy())


def _mixture(X: Any, means: Any) -> Any:
    return GaussianMixture(len(means), covariance_type="diag", means_init=means, max_iter=10, tol=0).fit(X)


ESTIMATORS: dict[str, Any] = {
    "L2SVM": lambda X, y: LinearSVC(C=1.0, dual=False).fit(X, y),
    "multinomial regression": lambda X, Y: LogisticRegression(C=1e3, max_iter=100).fit(X, Y.argmax(axis=1)),
    "GLM, poisson": lambda X, y: PoissonRegressor(alpha=0, max_iter=25).fit(X, y),
    "GLM, binomial, logit": lambda X, y, link: LogisticRegression(C=math.inf, max_iter=25).fit(X, y),
    "k-means": _kmeans,
    "PNMF": lambda X, W, H: _nmf(X, W, H, "kullback-leibler"),
    "NMF": lambda X, W, H: _nmf(X, W, H, "frobenius"),
    "linear regression, CG": lambda X, y: Ridge(1e-3, fit_intercept=False, solver="sparse_cg").fit(X, y),
    "PCA": lambda X: PCA(5).fit_transform(X),
    "Gaussian mixture": _mixture,
    "naive Bayes": lambda X, labels, k: GaussianNB().fit(X, labels).predict_log_proba(X),
    "SVM of classes": lambda X, Y: LinearSVC(C=1.0, dual=False).fit(X, Y.argmax(axis=1)),
    "kernel ridge": lambda X, y, Z: KernelRidge(alpha=1e-2, kernel="rbf", gamma=0.05).fit(X, y).predict(Z),
}


def enter(name: str, script: str, plain: Any, arguments: tuple[Any, ...]) -> Entered:
    """Return the fit of an estimator; there is no objective to be compared."""
    if script not in ESTIMATORS:
        raise NotHere("there is no such estimator")

    def call() -> tuple[Any, float]:
        return ESTIMATORS[script](*arguments), float(np.nan)

    return Entered(call)
