"""Programs with loops over lists, in the styles of collections of algorithms and of simulations."""

from __future__ import annotations

import math
import random


def sieve(n):
    flags = [True] * (n + 1)
    flags[0] = flags[1] = False
    i = 2
    while i * i <= n:
        if flags[i]:
            for j in range(i * i, n + 1, i):
                flags[j] = False
        i += 1
    primes = []
    for k in range(n + 1):
        if flags[k]:
            primes.append(k)
    return primes, flags


def knapsack(w, wt, val):
    n = len(wt)
    dp = [[0] * (w + 1) for _ in range(n + 1)]
    for i in range(1, n + 1):
        for j in range(1, w + 1):
            if wt[i - 1] <= j:
                dp[i][j] = max(val[i - 1] + dp[i - 1][j - wt[i - 1]], dp[i - 1][j])
            else:
                dp[i][j] = dp[i - 1][j]
    return dp[n][w], dp


def lis(a):
    n = len(a)
    best = [1] * n
    for i in range(n):
        for j in range(i):
            if a[j] < a[i] and best[j] + 1 > best[i]:
                best[i] = best[j] + 1
    return max(best)


def coins(amount, coins_):
    ways = [0] * (amount + 1)
    ways[0] = 1
    for coin in coins_:
        for x in range(coin, amount + 1):
            ways[x] += ways[x - coin]
    return ways[amount]


def bfs(grid):
    rows, cols = len(grid), len(grid[0])
    dist = [[-1] * cols for _ in range(rows)]
    queue = [(0, 0)]
    dist[0][0] = 0
    while queue:
        r, c = queue.pop(0)
        for dr, dc in [(0, 1), (1, 0), (0, -1), (-1, 0)]:
            nr, nc = r + dr, c + dc
            if 0 <= nr < rows and 0 <= nc < cols and grid[nr][nc] == 0 and dist[nr][nc] == -1:
                dist[nr][nc] = dist[r][c] + 1
                queue.append((nr, nc))
    return dist


def hull(points):
    points = sorted(points)
    lower = []
    for p in points:
        while len(lower) >= 2 and (lower[-1][0] - lower[-2][0]) * (p[1] - lower[-2][1]) - (
                lower[-1][1] - lower[-2][1]) * (p[0] - lower[-2][0]) <= 0:
            lower.pop()
        lower.append(p)
    return lower


def factors(n):
    i = 2
    found = []
    while i * i <= n:
        if n % i:
            i += 1
        else:
            n //= i
            found.append(i)
    if n > 1:
        found.append(n)
    return found


def matrix_chain(p):
    n = len(p)
    m = [[0 for x in range(n)] for y in range(n)]
    for length in range(2, n):
        for i in range(1, n - length + 1):
            j = i + length - 1
            m[i][j] = 1 << 50
            for k in range(i, j):
                q = m[i][k] + m[k + 1][j] + p[i - 1] * p[k] * p[j]
                if q < m[i][j]:
                    m[i][j] = q
    return m[1][n - 1]


def life(cells, steps):
    for _ in range(steps):
        new = []
        for i in range(len(cells)):
            row = []
            for j in range(len(cells[i])):
                count = 0
                for a in range(max(0, i - 1), min(len(cells), i + 2)):
                    for b in range(max(0, j - 1), min(len(cells[i]), j + 2)):
                        if (a != i or b != j) and cells[a][b]:
                            count += 1
                row.append(1 if count == 3 or (cells[i][j] and count == 2) else 0)
            new.append(row)
        cells = new
    return cells


def rpn(codes, values):
    stack = []
    for code, value in zip(codes, values, strict=False):
        if code == 0:
            stack.append(value)
        else:
            b = stack.pop()
            a = stack.pop()
            if code == 1:
                stack.append(a + b)
            elif code == 2:
                stack.append(a - b)
            else:
                stack.append(a * b)
    return stack[0]


def union_find(n, edges):
    parent = list(range(n))
    size = [1] * n
    joined = 0
    for a, b in edges:
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        if a != b:
            if size[a] < size[b]:
                a, b = b, a
            parent[b] = a
            size[a] += size[b]
            joined += 1
    return joined, parent


def bisect_all(a, keys):
    out = []
    for key in keys:
        lo, hi = 0, len(a)
        while lo < hi:
            mid = (lo + hi) // 2
            if a[mid] < key:
                lo = mid + 1
            else:
                hi = mid
        out.append(lo)
    return out


def merge_sort(a):
    n = len(a)
    width = 1
    while width < n:
        out = []
        for begin in range(0, n, 2 * width):
            left = a[begin:begin + width]
            right = a[begin + width:begin + 2 * width]
            i = j = 0
            while i < len(left) and j < len(right):
                if left[i] <= right[j]:
                    out.append(left[i])
                    i += 1
                else:
                    out.append(right[j])
                    j += 1
            out += left[i:]
            out.extend(right[j:])
        a = out
        width *= 2
    return a


def bubble(a):
    n = len(a)
    for i in range(n):
        swapped = False
        for j in range(n - 1 - i):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]
                swapped = True
        if not swapped:
            break
    return a


def pendulum(dt, n):
    th, w = 1.0, 0.0
    ths, ws, ts = [th], [w], [0.0]
    for k in range(n):
        w = ws[-1] - 9.81 * math.sin(ths[-1]) * dt
        th = ths[-1] + w * dt
        ws.append(w)
        ths.append(th)
        ts.append(ts[-1] + dt)
    return ths, ws, ts


def quintic(n):
    rx, ry, ryaw = [], [], []
    t = 0.0
    while t < n * 0.1:
        rx.append(1.0 + 2.0 * t + 0.5 * t ** 2 - 0.1 * t ** 3)
        ry.append(0.5 * t)
        ryaw.append(math.atan2(ry[-1], rx[-1]))
        t += 0.1
    return rx, ry, ryaw


def nearest(xs, ys, qx, qy):
    found = []
    for i in range(len(qx)):
        d = [(x - qx[i]) ** 2 + (y - qy[i]) ** 2 for x, y in zip(xs, ys, strict=False)]
        found.append(d.index(min(d)))
    return found


def pascal(n):
    rows = []
    for i in range(n):
        row = [1] * (i + 1)
        for j in range(1, i):
            row[j] = (rows[i - 1][j - 1] + rows[i - 1][j]) % 1000007
        rows.append(row)
    return rows


def floyd(dist):
    n = len(dist)
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if dist[i][k] + dist[k][j] < dist[i][j]:
                    dist[i][j] = dist[i][k] + dist[k][j]
    return dist


def collatz(limit):
    best = [0] * limit
    for i in range(1, limit):
        n, steps = i, 0
        while n != 1 and (n >= i):
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        best[i] = steps + (best[n] if n < i else 0)
    return max(best)


def subset_sum(a, total):
    table = [[False] * (total + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) + 1):
        table[i][0] = True
    for i in range(1, len(a) + 1):
        for s in range(1, total + 1):
            table[i][s] = table[i - 1][s] or (s >= a[i - 1] and table[i - 1][s - a[i - 1]])
    return table[len(a)][total]


def _numbers(seed, count, low, high):
    r = random.Random(seed)
    return [r.randint(low, high) for _ in range(count)]


def _floats(seed, count):
    r = random.Random(seed)
    return [r.random() for _ in range(count)]


#: Arguments of each program.
ARGUMENTS = {
    "sieve": lambda: (200,),
    "knapsack": lambda: (60, _numbers(1, 12, 1, 30), _numbers(2, 12, 1, 99)),
    "lis": lambda: (_numbers(3, 60, 0, 999),),
    "coins": lambda: (300, [1, 2, 5, 10, 20, 50, 100, 200]),
    "bfs": lambda: ([_numbers(k, 12, 0, 1) for k in range(12)],),
    "hull": lambda: (list(zip(_floats(4, 90), _floats(5, 90), strict=True)),),
    "factors": lambda: (2 ** 4 * 3 * 101 * 1009,),
    "matrix_chain": lambda: (_numbers(6, 12, 1, 50),),
    "life": lambda: ([_numbers(k, 9, 0, 1) for k in range(8)], 5),
    "rpn": lambda: ([0, 0, 1, 0, 2, 0, 3] * 9, _floats(7, 63)),
    "union_find": lambda: (40, list(zip(_numbers(8, 60, 0, 39), _numbers(9, 60, 0, 39), strict=True))),
    "bisect_all": lambda: (sorted(_floats(10, 50)), _floats(11, 40)),
    "merge_sort": lambda: (_floats(12, 75),),
    "bubble": lambda: (_numbers(13, 40, 0, 999),),
    "pendulum": lambda: (0.01, 60),
    "quintic": lambda: (50,),
    "nearest": lambda: tuple(_floats(k, n) for k, n in ((14, 20), (15, 20), (16, 9), (17, 9))),
    "pascal": lambda: (20,),
    "floyd": lambda: ([_numbers(k, 9, 1, 99) for k in range(9)],),
    "collatz": lambda: (80,),
    "subset_sum": lambda: (_numbers(18, 9, 1, 40), 70),
}
