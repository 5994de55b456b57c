"""Three of the algorithms once more, as they look in programs: tables, dictionaries, objects, helpers."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from bench.algorithms import glm, kmeans, regression
from bench.algorithms.script import Script

Array = np.ndarray[Any, Any]


def regression_of_table(frame: Any, parameters: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Linear regression by conjugate gradients: a table comes in, a dictionary of coefficients goes out."""
    target = parameters["target"]
    features = [name for name in frame.columns if name != target]
    X = frame[features].to_numpy()
    y = frame[target].to_numpy()
    state = {"w": np.zeros(X.shape[1]), "r": -(X.T @ y)}
    state["p"] = -state["r"]
    state["norm"] = (state["r"] * state["r"]).sum()
    target_norm = state["norm"] * parameters["tol"] ** 2
    for _ in range(parameters["steps"]):
        q = X.T @ (X @ state["p"]) + parameters["lam"] * state["p"]
        alpha = state["norm"] / (state["p"] @ q)
        state["w"] += alpha * state["p"]
        state["r"] += alpha * q
        last, state["norm"] = state["norm"], (state["r"] * state["r"]).sum()
        if state["norm"] < target_norm:
            break
        state["p"] = -state["r"] + state["norm"] / last * state["p"]
    error = X @ state["w"] - y
    value = (error ** 2).sum() + parameters["lam"] * (state["w"] @ state["w"])
    return dict(zip(features, state["w"], strict=True)), float(value)


class Clusters:
    """k-means by membership, with what it learns in attributes."""

    def __init__(self, steps: int = 20) -> None:
        self.steps = steps
        self.cost = 0.0

    def assign(self) -> None:
        """Give every row its nearest centres."""
        D = -2 * (self.X @ self.C.T) + (self.C ** 2).sum(axis=1)
        least = D.min(axis=1)
        self.cost = least.sum() + (self.X ** 2).sum()
        P = (D <= least[:, None]).astype(self.X.dtype)
        self.P = P / P.sum(axis=1, keepdims=True)

    def move(self) -> None:
        """Put every centre in the middle of its rows."""
        self.C = (self.P.T @ self.X) / self.P.sum(axis=0)[:, None]

    def fit(self, X: Array, C: Array) -> Clusters:
        """Learn the centres, from `C` on."""
        self.X, self.C = X, C
        for _ in range(self.steps):
            self.assign()
            self.move()
        return self


def clusters_of_table(frame: Any, C: Array) -> tuple[Array, float]:
    """k-means of a table, by an object."""
    model = Clusters().fit(frame.to_numpy(), C)
    return model.C, float(model.cost)


def _mean(eta: Array) -> Array:
    return np.clip(1 / (1 + np.exp(-eta)), 1e-10, 1 - 1e-10)


def _step(X: Array, y: Array, model: dict[str, Any]) -> None:
    """Solve the equations of one step."""
    eta = X @ model["beta"]
    plain = 1 / (1 + np.exp(-eta))
    slope = plain * (1 - plain)
    mu = _mean(eta)
    w = slope ** 2 / (mu * (1 - mu))
    z = eta + (y - mu) / np.maximum(slope, 1e-10)
    model["beta"] = np.linalg.solve((X * w[:, np.newaxis]).T @ X, X.T @ (w * z))
    model["last"] = model["deviance"]
    model["deviance"] = -2 * (y * np.log(mu) + (1 - y) * np.log(1 - mu)).sum()


def logit_of_table(frame: Any, parameters: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Logistic regression of a table by reweighting, with helpers and dictionaries."""
    X = frame.drop(columns=parameters["target"]).to_numpy()
    y = frame[parameters["target"]].to_numpy()
    model: dict[str, Any] = {"beta": np.zeros(X.shape[1]), "deviance": np.inf}
    for _ in range(parameters["steps"]):
        _step(X, y, model)
        if abs(model["last"] - model["deviance"]) < parameters["tol"] * (abs(model["deviance"]) + 0.1):
            break
    return {"coefficients": model["beta"]}, float(model["deviance"])


def _table(X: Array, y: Array | None = None) -> Any:
    """Return a table with a column for each of `X`, and one called "target"."""
    names = [f"x{at}" for at in range(X.shape[1])]
    frame = importlib.import_module("pandas").DataFrame(X, columns=names)
    if y is not None:
        frame["target"] = y
    return frame


def _to_regress(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    X, y = regression.targets(rows, dtype, rng)
    return _table(X, y), {"target": "target", "lam": 1e-3, "steps": 30, "tol": 1e-12}


def _to_cluster(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    X, C = kmeans.one_cloud(rows, dtype, rng)
    return _table(X), C


def _to_tell(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    X, y = glm.successes(rows, dtype, rng)
    return _table(X, y), {"target": "target", "steps": 25, "tol": 1e-10}


FRAMES = (
    Script("linear regression, CG, of a table", regression_of_table, _to_regress),
    Script("k-means by an object", clusters_of_table, _to_cluster),
    Script("GLM, binomial, of a table", logit_of_table, _to_tell),
)
