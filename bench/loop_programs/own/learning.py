"""Machine learning from scratch."""

import math

import numpy as np

from bench.loop_programs.own.program import Own


def perceptron(x, y, epochs):
    w = np.zeros(x.shape[1])
    bias = 0
    for epoch in range(epochs):
        mistakes = 0
        for i in range(len(x)):
            if y[i] * (np.dot(w, x[i]) + bias) <= 0:
                w += y[i] * x[i]
                bias += y[i]
                mistakes += 1
        if mistakes == 0:
            break
    return w, bias, mistakes


def k_means_rows(x, centers, rounds):
    labels = np.zeros(len(x), dtype=int)
    for _ in range(rounds):
        for i, point in enumerate(x):
            distances = np.sum((centers - point) ** 2, axis=1)
            labels[i] = np.argmin(distances)
        for k in range(len(centers)):
            members = x[labels == k]
            if len(members) > 0:
                centers[k] = members.mean(axis=0)
    return labels, centers


def decision_stump(x, y, weights):
    best_error = np.inf
    best = (0, 0.0, 1)
    for feature in range(x.shape[1]):
        for threshold in np.unique(x[:, feature]):
            for sign in (1, -1):
                error = 0.0
                for i in range(len(y)):
                    guess = sign if x[i, feature] > threshold else -sign
                    if guess != y[i]:
                        error += weights[i]
                if error < best_error:
                    best_error = error
                    best = (feature, threshold, sign)
    return best, best_error


def naive_bayes(x, y, classes, levels):
    n, features = x.shape
    counts = np.ones((classes, features, levels))
    prior = np.zeros(classes)
    for i in range(n):
        prior[y[i]] += 1
        for f in range(features):
            counts[y[i], f, x[i, f]] += 1
    log_likelihood = np.log(counts / counts.sum(axis=2, keepdims=True))
    correct = 0
    for i in range(n):
        scores = np.log(prior / n)
        for f in range(features):
            scores += log_likelihood[:, f, x[i, f]]
        if scores.argmax() == y[i]:
            correct += 1
    return correct / n


def sigmoid(z):
    if z < -30:
        return 0.0
    return 1.0 / (1.0 + math.exp(-z))


def logistic_sgd(x, y, rate, epochs):
    n, d = x.shape
    w = np.zeros(d)
    loss = []
    for _ in range(epochs):
        total = 0.0
        for i in range(n):
            z = 0.0
            for k in range(d):
                z += w[k] * x[i, k]
            p = sigmoid(z)
            total += (p - y[i]) ** 2
            for k in range(d):
                w[k] -= rate * (p - y[i]) * x[i, k]
        loss.append(total / n)
    return w, loss


def small_network(x, y, w1, w2, rate, batch, epochs):
    losses = np.zeros(epochs)
    for epoch in range(epochs):
        for start in range(0, len(x), batch):
            xb = x[start:start + batch]
            yb = y[start:start + batch]
            hidden = np.maximum(xb @ w1, 0)
            out = hidden @ w2
            error = out - yb
            losses[epoch] += (error ** 2).sum()
            grad2 = hidden.T @ error
            back = error @ w2.T
            back[hidden <= 0] = 0
            grad1 = xb.T @ back
            w2 -= rate * grad2
            w1 -= rate * grad1
    return losses


def nearest_neighbours(train, labels, test, k):
    out = np.zeros(len(test), dtype=labels.dtype)
    near = np.zeros(k)
    votes = np.zeros(k, dtype=labels.dtype)
    for t in range(len(test)):
        near[:] = np.inf
        for i in range(len(train)):
            d = 0.0
            for f in range(train.shape[1]):
                diff = train[i, f] - test[t, f]
                d += diff * diff
                if d >= near[k - 1]:
                    break
            if d < near[k - 1]:
                j = k - 1
                while j > 0 and near[j - 1] > d:
                    near[j] = near[j - 1]
                    votes[j] = votes[j - 1]
                    j -= 1
                near[j] = d
                votes[j] = labels[i]
        out[t] = np.bincount(votes).argmax()
    return out


def q_learning(rewards, draws, actions, alpha, gamma, epsilon):
    size = rewards.shape[0]
    q = np.zeros((size, size, 4))
    dx = [0, 0, 1, -1]
    dy = [1, -1, 0, 0]
    x = y = 0
    total = 0
    for step in range(len(draws)):
        if draws[step] < epsilon:
            action = actions[step]
        else:
            action = np.argmax(q[x, y])
        nx = min(max(x + dx[action], 0), size - 1)
        ny = min(max(y + dy[action], 0), size - 1)
        reward = rewards[nx, ny]
        q[x, y, action] += alpha * (reward + gamma * np.max(q[nx, ny]) - q[x, y, action])
        total += reward
        if reward > 0:
            x = y = 0
        else:
            x, y = nx, ny
    return q, total


def factorize_ratings(users, items, ratings, p, q, rate, decay):
    for u, i, r in zip(users, items, ratings, strict=True):
        error = r - p[u] @ q[i]
        old = p[u].copy()
        p[u] += rate * (error * q[i] - decay * p[u])
        q[i] += rate * (error * old - decay * q[i])
    return np.sqrt(np.mean((ratings - np.sum(p[users] * q[items], axis=1)) ** 2))


def gaussian_mixture(x, means, sigmas, shares, rounds):
    k = len(means)
    likelihood = 0.0
    for _ in range(rounds):
        density = np.zeros((len(x), k))
        for j in range(k):
            density[:, j] = shares[j] / sigmas[j] * np.exp(-0.5 * ((x - means[j]) / sigmas[j]) ** 2)
        total = density.sum(axis=1)
        likelihood = np.log(total).sum()
        for j in range(k):
            r = density[:, j] / total
            weight = r.sum()
            means[j] = (r * x).sum() / weight
            sigmas[j] = np.sqrt((r * (x - means[j]) ** 2).sum() / weight)
            shares[j] = weight / len(x)
    return likelihood


def self_organizing_map(x, grid, rate):
    radius = grid.shape[0] / 2
    for t in range(len(x)):
        best = np.inf
        for i in range(grid.shape[0]):
            for j in range(grid.shape[1]):
                d = np.sum((grid[i, j] - x[t]) ** 2)
                if d < best:
                    best = d
                    bi, bj = i, j
        for i in range(grid.shape[0]):
            for j in range(grid.shape[1]):
                h = math.exp(-((i - bi) ** 2 + (j - bj) ** 2) / (2 * radius * radius))
                grid[i, j] += rate * h * (x[t] - grid[i, j])
        radius = max(1.0, radius * 0.99)
    return grid


PROGRAMS = (
    Own(perceptron, lambda g, n: (lambda x: (x, np.where(x[:, 0] + x[:, 1] > 0.3, 1, -1), 5))(
        g.normal(size=(n, 8))), 4000, 9),
    Own(k_means_rows, lambda g, n: (g.random((n, 4)), g.random((6, 4)), 4), 1200, 20),
    Own(decision_stump, lambda g, n: (np.round(g.random((n, 3)), 1), g.choice([-1, 1], n), np.full(n, 1 / n)),
        600, 9),
    Own(naive_bayes, lambda g, n: (g.integers(0, 5, (n, 6)), g.integers(0, 3, n), 3, 5), 2000, 9),
    Own(logistic_sgd, lambda g, n: (g.normal(size=(n, 6)), g.integers(0, 2, n), 0.05, 3), 1500, 9,
        ("sigmoid",)),
    Own(small_network, lambda g, n: (g.normal(size=(n, 10)), g.normal(size=(n, 1)), g.normal(size=(10,
        20)) / 5,
                                     g.normal(size=(20, 1)) / 5, 0.0005, 32, 5), 3000, 40),
    Own(nearest_neighbours, lambda g, n: (g.random((300, 4)), g.integers(0, 3, 300), g.random((n, 4)), 5),
        60, 3),
    Own(q_learning, lambda g, n: (np.where(np.arange(64).reshape(8, 8) == 63, 10, -1), g.random(n),
                                  g.integers(0, 4, n), 0.1, 0.9, 0.2), 8000, 20),
    Own(factorize_ratings, lambda g, n: (g.integers(0, 100, n), g.integers(0, 200, n), g.integers(1, 6,
        n) * 1.0,
                                         g.random((100, 8)), g.random((200, 8)), 0.01, 0.02), 5000, 9),
    Own(gaussian_mixture, lambda g, n: (np.concatenate([g.normal(size=n), 4 + g.normal(size=n)]),
        np.array([-1.0, 1.0, 5.0]), np.ones(3), np.full(3, 1 / 3), 20), 2000, 9),
    Own(self_organizing_map, lambda g, n: (g.random((n, 3)), g.random((10, 10, 3)), 0.1), 60, 3),
)
