"""Small functions with loops over elements, by what they show."""

from __future__ import annotations

import math

import numpy as np

LIMIT = 3
TABLE = np.arange(10.0)


def running_sum(x):
    s = 0
    for i in range(len(x)):
        s += x[i]
        x[i] = s
    return s


def table_of_costs(a, b):
    d = np.zeros((len(a) + 1, len(b) + 1), dtype=np.int64)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return d


def left_over(x, y):
    before = 0
    for i in range(len(y)):
        x[before] = x[before] * y[i]
        before = i
    return before


def in_between(x, y):
    t = 0.0
    for i in range(len(y)):
        t = x[i] * y[i]
        if t < 0:
            x[0] += t
        x[1] = y[i] + x[i]
    return t


def neighbours(x, y):
    for i in range(len(x)):
        y[i] = x[i - 1] + x[i + 1]
    return y


def shifted(x, y):
    for i in range(1, len(y)):
        y[i] = x[i - 1] + 1
    return y


def largest_first(x):
    best = x[0]
    at = 0
    for i in range(1, len(x)):
        if x[i] > best:
            best = x[i]
            at = i
    return best, at, i


def found_at(x, wanted):
    for i in range(len(x)):
        if x[i] == wanted:
            return i
    return -1


def checked(x):
    for i in range(len(x)):
        if x[i] < 0:
            raise ValueError(f"negative at {i}")
        x[i] = math.sqrt(x[i])
    return x


def growing(x):
    n = 1
    for i in range(len(x)):
        n = n * 3 + int(x[i])
    return n


def added(x):
    for i in range(1, len(x)):
        x[i] += x[i - 1]
    return x


def divided(x, y):
    for i in range(len(x)):
        x[i] = x[i] / y
    return x


def halved(x, y):
    s = 0.0
    for i in range(len(x)):
        s += x[i] / y[i]
    return s


def unbound(x, late):
    if late:
        t = 1
    for i in range(len(x)):
        x[i] = t
    return x


def named_later(x):
    for i in range(len(x)):
        if x[i] > 5:
            last = i
        if i == 7:
            x[0] = last
    return x


def by_rows(a, n):
    total = 0.0
    for i in range(n):
        total = total + a[i].sum()
    return total


def of_module(x):
    for i in range(len(x)):
        x[i] = x[i] * LIMIT + TABLE[i % 10]
    return x


def listed(x):
    found = []
    for i in range(len(x)):
        if x[i] > 1:
            found.append(x[i])
    return found


def tabled(x):
    found = {}
    for i in range(len(x)):
        if x[i] > 1:
            found[i] = x[i]
    return found


def exponentials(x):
    for i in range(len(x)):
        x[i] = np.exp(x[i])
    return x


def sliced(x, y):
    for i in range(1, len(x)):
        y[i] = x[:i].sum()
    return y


def attempted(x):
    for i in range(len(x)):
        try:
            x[i] = 1 / x[i]
        except ZeroDivisionError:
            x[i] = 0
    return x


def reversed_down(x):
    for i in range(len(x) - 1, -1, -1):
        x[i] = x[i] - x[-1]
    return x


def each_of(x):
    s = 0
    for v in x:
        s = s + v
    return s, v


def swapped(x):
    for i in range(len(x) // 2):
        x[i], x[len(x) - 1 - i] = x[len(x) - 1 - i], x[i]
    return x


def while_less(x, limit):
    i = 0
    s = 0.0
    while i < len(x) and s < limit:
        s += x[i]
        i += 1
    return i, s


def singles(x):
    s = np.float32(0.1)
    for i in range(len(x)):
        s = s * 0.3 + x[i]
        x[i] = s
    return s


def waiting(x, flag):
    for i in range(len(x)):
        while flag[0] == 0:
            x[i] += 1
    return x


def own_function(x, abs):
    for i in range(len(x)):
        x[i] = abs(x[i])
    return x


class Odd:
    """Looks like a module."""

    pi = 3

    @staticmethod
    def sqrt(x):
        return x * 2


def own_module(x, math):
    for i in range(len(x)):
        x[i] = math.sqrt(x[i]) + math.pi
    return x


def captured(x):
    shift = 2.0

    def inner():
        return shift

    for i in range(len(x)):
        x[i] = x[i] + shift
    return x, inner()


shift = 100.0


def large_or_float(x, s):
    for i in range(len(x)):
        s += x[i]
    return s


def products(x, y):
    for i in range(len(x)):
        if x[i] > 3:
            y[i] = x[i] * x[i] + y[i]
        else:
            y[i] -= x[i]
    return y


def row_sums(a, s):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            s[i] += a[i, j] * a[i, j]
    return s


def reduced_rows(a, x, y):
    for i in range(len(y)):
        y[i] += a[i, :i].sum() - np.sum(a[i] * x) + (x[i:] * a[i:, i]).sum()
        if y[i] < 1e9:
            y[i] += a[:, i].max() - np.min(x[:3])
    return y


def products_of_each(a, y):
    for i in range(len(y)):
        y[i] = np.prod(a[i])
    return y


def stepping(x, n):
    for i in range(len(x)):
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        x[i] = n % 16 - n // 8
    return n


def shortest(d, e):
    for k in range(d.shape[0]):
        for i in range(d.shape[0]):
            for j in range(d.shape[0]):
                if d[i, k] + e[k, j] < d[i, j]:
                    d[i, j] = d[i, k] + e[k, j]
    return d


def gathered(x, at, out):
    for i in range(1, len(out)):
        s = x[0] - x[0]
        for j in range(i):
            s += x[at[j]] * x[j]
            if s > 1e9:
                return i, j
        out[i - 1] = s
    return out


def joined_bits(x, y):
    s = 0
    for i in range(len(x)):
        n = abs(int(x[i])) | y
        s = n * n
    return s


def scattered(x, low, high):
    for k in range(9):
        for i in range(low, high):
            x[i] = x[i] * 1e10 + k
            x[i - 1] = 0.5 * x[i]
    return x


def eliminated(x):
    n = x.shape[0]
    for k in range(n):
        for i in range(k + 1, n):
            if x[k, k] == 0:
                raise ValueError(f"{k}")
            f = x[i, k] / x[k, k]
            x[i, k:] -= f * x[k, k:]
    return x


def along(x, y, f):
    for i in range(1, 3):
        t = f * 2
        x[i, :] = x[i - 1, :] * y[:] / f + 1
        x[:, i] /= y[i]
        y[i:-1] = -y[i:-1] + x[i, i:-1] * t
        x[0][-2:] = 0.5
    return x


def over_one_place(x, y):
    for i in range(3):
        x[:] = y[:] + x[:]
        x[i] += 1
    return x


def nothing_there(x, n):
    for i in range(3):
        t = x[i] * x[3]
        x[n:3] = t * x[n:3]
        x[0:0] /= 0.0
        x[i] = 1.0
    return x


def twice_sliced(x):
    for i in range(3):
        x[i:][0:2] = x[i]
    return x


def last_of_all(x, n):
    y = 0.0
    for k in range(n):
        x[k] *= 1.0 + math.e
        for i in range(k):
            if x[i] > 60:
                return y, i
            y = x[i] + k
    return x


def never_assigned(x, n):
    for i in range(n):
        if n == 3:
            p = 2.0
        x[i] = p
    return i


def reduced(x):
    n = x.shape[0]
    for k in range(n):
        x[k] /= x[k, k]
        for i in range(n):
            if i != k:
                x[i] -= x[i][k] * x[k]
    return x


def unneeded(x, y):
    for i in range(len(y)):
        t = y[i] * y[i]
        x[i] = t * x[i]
    return x


def rows_of(starts, at, x, out):
    for i in range(len(out)):
        s = 0.0
        for k in range(starts[i], starts[i + 1]):
            s += x[at[k]]
        out[i] = s
    return out


def packed(sizes, worth, best):
    for i in range(len(sizes)):
        for w in range(len(best) - 1, int(sizes[i]) - 1, -1):
            if best[w - sizes[i]] + worth[i] > best[w]:
                best[w] = best[w - sizes[i]] + worth[i]
    return best


def extremes(x, y, out):
    best = 0.0
    for i in range(len(out)):
        for k in range(len(x)):
            if x[k] * y[i] > out[i]:
                out[i] = x[k] * y[i]
        low = np.inf
        for k in range(len(x)):
            if x[k] - y[i] < low:
                low = x[k] - y[i]
        if low > best:
            best = low
    return best


def divided_rows(a, c):
    for i in range(len(c)):
        a[i] += 1.0
        a[:] /= a[:] / c[i // 2]
    return a


def summed_table(t, x, most):
    best = 0.0
    for i in range(1, t.shape[0]):
        for j in range(1, t.shape[1]):
            if t[i - 1, j] < most:
                t[i, j] = (t[i - 1, j] + t[i, j - 1]) * x[j]
                if t[i - 1, j - 1] * 2.0 > best:
                    best = t[i - 1, j - 1] * 2.0
    return best, 0


def lengths_of_paths(a, b, t, most):
    for i in range(len(a)):
        for j in range(len(b)):
            if a[i] == b[j]:
                t[i + 1, j + 1] = t[i, j] + 1
            else:
                t[i + 1, j + 1] = max(t[i, j + 1], t[i + 1, j])
            if t[i, j] > most:
                t[i + 1, j + 1] = 0
    return t
