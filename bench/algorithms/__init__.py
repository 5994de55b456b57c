"""Whole algorithms as data scientists write them, one family a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.algorithms import classifiers, factors, glm, images, kmeans, networks, regression
from bench.algorithms.script import Script
from jitla.cli.demo_algorithms import l2svm
from jitla.cli.demo_algorithms import logistic as logistic


def _two(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    X, y = glm.successes(rows, dtype, rng)
    return X, 2 * y - 1


def _with_link(link: str) -> Callable[[int, Any, np.random.Generator], tuple[Any, ...]]:
    return lambda rows, dtype, rng: (*glm.successes(rows, dtype, rng), link)


DENSE = (
    Script("L2SVM", l2svm, _two),
    Script("multinomial regression", classifiers.multinomial, classifiers.classes),
    Script("GLM, poisson", glm.poisson, glm.counts),
    Script("GLM, binomial, logit", glm.binomial, _with_link("logit")),
    Script("GLM, binomial, cauchit", glm.binomial, _with_link("cauchit")),
    Script("GLM, binomial, cloglog", glm.binomial, _with_link("cloglog")),
    Script("k-means", kmeans.kmeans, kmeans.clouds),
    Script("k-means by membership", kmeans.kmeans_by_membership, kmeans.one_cloud),
    Script("autoencoder", networks.autoencoder, networks.to_encode),
    Script("PNMF", factors.pnmf, factors.positive),
    Script("NMF", factors.nmf, factors.positive),
    Script("linear regression, CG", regression.conjugate_gradients, regression.targets),
    Script("stepwise regression", regression.stepwise, regression.few_targets),
    Script("PCA", factors.pca, factors.table),
    Script("Gaussian mixture", factors.gaussian_mixture, factors.mixture),
    Script("naive Bayes", classifiers.naive_bayes, classifiers.kinds),
    Script("SVM of classes", classifiers.svm_of_classes, classifiers.sides),
    Script("t-SNE", factors.embedding, factors.affinities),
    Script("kernel ridge", regression.kernel_ridge, regression.pairs),
    Script("blur", images.blur, images.grey),
    Script("unsharp", images.unsharp, images.colour),
    Script("Harris", images.harris, images.grey),
    Script("equalise", images.equalise, images.levels),
    Script("camera raw", images.camera, images.sensor),
    Script("local Laplacian", images.local_laplacian, images.grey),
    Script("bilateral grid", images.bilateral_grid, images.grey),
    Script("snake", images.snake, images.contour),
    Script("perceptron", networks.perceptron, networks.to_classify),
    Script("convolution", networks.convolution, networks.to_see),
    Script("LSTM", networks.lstm, networks.to_follow),
    Script("attention", networks.attention, networks.to_attend),
)
