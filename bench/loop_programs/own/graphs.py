"""Graphs: searches, shortest paths, components, ranks."""

import numpy as np

from bench.loop_programs.own.program import Own


def breadth_first(starts, targets, source):
    n = len(starts) - 1
    distance = np.full(n, -1)
    queue = np.zeros(n, dtype=np.int64)
    head, tail = 0, 1
    queue[0] = source
    distance[source] = 0
    while head < tail:
        u = queue[head]
        head += 1
        for e in range(starts[u], starts[u + 1]):
            v = targets[e]
            if distance[v] == -1:
                distance[v] = distance[u] + 1
                queue[tail] = v
                tail += 1
    return distance


def dijkstra_dense(w, source):
    n = w.shape[0]
    dist = np.full(n, np.inf)
    done = np.zeros(n, dtype=bool)
    dist[source] = 0
    for _ in range(n):
        u = -1
        for i in range(n):
            if not done[i] and (u == -1 or dist[i] < dist[u]):
                u = i
        if dist[u] == np.inf:
            break
        done[u] = True
        for v in range(n):
            if w[u, v] > 0 and dist[u] + w[u, v] < dist[v]:
                dist[v] = dist[u] + w[u, v]
    return dist


def find_root(parent, x):
    while parent[x] != x:
        parent[x] = parent[parent[x]]
        x = parent[x]
    return x


def connected_components(edges, n):
    parent = np.arange(n)
    size = np.ones(n, dtype=np.int64)
    count = n
    for k in range(len(edges)):
        a = find_root(parent, edges[k, 0])
        b = find_root(parent, edges[k, 1])
        if a == b:
            continue
        if size[a] < size[b]:
            a, b = b, a
        parent[b] = a
        size[a] += size[b]
        count -= 1
    return count, size.max()


def bellman_ford(sources, targets, weights, n, start):
    dist = np.full(n, np.inf)
    dist[start] = 0.0
    for _ in range(n - 1):
        changed = False
        for u, v, w in zip(sources, targets, weights, strict=True):
            if dist[u] + w < dist[v]:
                dist[v] = dist[u] + w
                changed = True
        if not changed:
            return dist
    return dist


def count_triangles(adjacency):
    n = len(adjacency)
    triangles = 0
    for i in range(n):
        for j in range(i + 1, n):
            if adjacency[i, j]:
                triangles += np.sum(adjacency[i, j + 1:] & adjacency[j, j + 1:])
    return triangles


def dense_page_rank(adjacency, damping, tolerance):
    n = adjacency.shape[0]
    degree = adjacency.sum(axis=1)
    degree[degree == 0] = 1
    rank = np.ones(n) / n
    rounds = 0
    while True:
        new = np.full(n, (1 - damping) / n)
        for i in range(n):
            new += damping * rank[i] / degree[i] * adjacency[i]
        rounds += 1
        if np.abs(new - rank).sum() < tolerance:
            return new, rounds
        rank = new


def topological_order(starts, targets):
    n = len(starts) - 1
    indegree = np.zeros(n, dtype=int)
    for t in targets:
        indegree[t] += 1
    stack = [i for i in range(n) if indegree[i] == 0]
    order = []
    while stack:
        u = stack.pop()
        order.append(u)
        for v in targets[starts[u]:starts[u + 1]]:
            indegree[v] -= 1
            if indegree[v] == 0:
                stack.append(int(v))
    return np.array(order)


def minimum_spanning_tree(w):
    n = len(w)
    in_tree = np.zeros(n, dtype=bool)
    best = np.full(n, np.inf)
    parent = np.full(n, -1)
    best[0] = 0.0
    total = 0.0
    for _ in range(n):
        u = np.argmin(np.where(in_tree, np.inf, best))
        in_tree[u] = True
        total += best[u]
        closer = (w[u] < best) & ~in_tree
        best[closer] = w[u][closer]
        parent[closer] = u
    return total, parent


def reachable(adjacency):
    closure = adjacency.copy()
    for k in range(len(closure)):
        for i in range(len(closure)):
            if closure[i, k]:
                closure[i] |= closure[k]
    return closure


def random_graph(g, n, degree):
    counts = g.integers(1, 2 * degree, n)
    starts = np.concatenate(([0], np.cumsum(counts)))
    return starts, g.integers(0, n, starts[-1])


def acyclic_graph(g, n, degree):
    counts = np.minimum(g.integers(1, 2 * degree, n), n - 1 - np.arange(n))
    starts = np.concatenate(([0], np.cumsum(counts)))
    sources = np.repeat(np.arange(n), counts)
    return starts, sources + 1 + (g.random(starts[-1]) * (n - 1 - sources)).astype(np.int64)


PROGRAMS = (
    Own(breadth_first, lambda g, n: (*random_graph(g, n, 5), 0), 10000, 8),
    Own(dijkstra_dense, lambda g, n: (g.random((n, n)) * (g.random((n, n)) < 0.3), 0), 200, 6),
    Own(connected_components, lambda g, n: (g.integers(0, n, (n, 2)), n), 20000, 9, ("find_root",)),
    Own(bellman_ford, lambda g, n: (g.integers(0, n, 8 * n), g.integers(0, n, 8 * n), g.random(8 * n), n,
        0), 800, 6),
    Own(count_triangles, lambda g, n: (g.random((n, n)) < 0.3,), 220, 6),
    Own(dense_page_rank, lambda g, n: ((g.random((n, n)) < 0.1).astype(float), 0.85, 1e-8), 400, 6),
    Own(topological_order, lambda g, n: acyclic_graph(g, n, 5), 8000, 9),
    Own(minimum_spanning_tree, lambda g, n: (g.random((n, n)),), 700, 6),
    Own(reachable, lambda g, n: (g.random((n, n)) < 1.2 / n,), 250, 6),
)
