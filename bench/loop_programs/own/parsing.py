"""Parsing of bytes, checksums, and random numbers by integer arithmetic."""

import numpy as np

from bench.loop_programs.own.program import Own


def adler32(data):
    a, b = 1, 0
    for byte in data:
        a = (a + int(byte)) % 65521
        b = (b + a) % 65521
    return (b << 16) | a


def crc16(data, polynomial):
    crc = 0xFFFF
    for i in range(len(data)):
        crc ^= int(data[i])
        for _ in range(8):
            if crc & 1:
                crc = (crc >> 1) ^ polynomial
            else:
                crc >>= 1
    return crc


def parse_integers(text):
    out = np.zeros(len(text), dtype=np.int64)
    count = 0
    i = 0
    while i < len(text):
        c = text[i]
        if c == 32 or c == 10:
            i += 1
            continue
        sign = 1
        if c == 45:
            sign = -1
            i += 1
        value = 0
        while i < len(text) and 48 <= text[i] <= 57:
            value = value * 10 + int(text[i]) - 48
            i += 1
        out[count] = sign * value
        count += 1
    return out[:count]


def column_sums(text, columns):
    sums = np.zeros(columns)
    rows = 0
    column = 0
    value = 0
    fraction = 0.0
    for c in text:
        if c == 44 or c == 10:
            sums[column] += value
            value = 0
            fraction = 0.0
            if c == 10:
                rows += 1
                column = 0
            else:
                column += 1
        elif c == 46:
            fraction = 0.1
        elif fraction > 0:
            value = value + fraction * (c - 48)
            fraction = fraction / 10
        else:
            value = 10 * value + (c - 48)
    return sums, rows


def base64_decode(text, table):
    out = np.empty(len(text) // 4 * 3, dtype=np.uint8)
    j = 0
    for i in range(0, len(text), 4):
        word = (int(table[text[i]]) << 18) | (int(table[text[i + 1]]) << 12) | (
            int(table[text[i + 2]]) << 6) | int(table[text[i + 3]])
        out[j] = word >> 16
        out[j + 1] = (word >> 8) & 255
        out[j + 2] = word & 255
        j += 3
    return out


def xorshift(seed, out):
    state = seed
    for i in range(len(out)):
        state ^= (state << 13) & 0xFFFFFFFF
        state ^= state >> 17
        state ^= (state << 5) & 0xFFFFFFFF
        out[i] = state / 4294967296
    return state


def hash_words(words, seed):
    h = seed
    for w in words:
        k = (int(w) * 0xCC9E2D51) & 0xFFFFFFFF
        k = ((k << 15) | (k >> 17)) & 0xFFFFFFFF
        k = (k * 0x1B873593) & 0xFFFFFFFF
        h ^= k
        h = ((h << 13) | (h >> 19)) & 0xFFFFFFFF
        h = (h * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= h >> 16
    return h


def longest_matches(data, window):
    lengths = np.zeros(len(data), dtype=np.int32)
    offsets = np.zeros(len(data), dtype=np.int32)
    i = 0
    tokens = 0
    while i < len(data):
        best = 0
        offset = 0
        for start in range(max(0, i - window), i):
            k = 0
            while k < 15 and i + k < len(data) and data[start + k] == data[i + k]:
                k += 1
            if k > best:
                best = k
                offset = i - start
        lengths[tokens] = best
        offsets[tokens] = offset
        tokens += 1
        i += max(best, 1)
    return lengths[:tokens], offsets[:tokens]


def decode_utf8(data):
    out = []
    i = 0
    bad = 0
    while i < len(data):
        b = int(data[i])
        if b < 128:
            out.append(b)
            i += 1
        elif b >> 5 == 6 and i + 1 < len(data):
            out.append((b & 31) << 6 | int(data[i + 1]) & 63)
            i += 2
        elif b >> 4 == 14 and i + 2 < len(data):
            out.append((b & 15) << 12 | (int(data[i + 1]) & 63) << 6 | int(data[i + 2]) & 63)
            i += 3
        else:
            bad += 1
            i += 1
    return np.array(out), bad


def letter_counts(text):
    counts = np.zeros(256, dtype=np.int64)
    pairs = np.zeros((256, 256), dtype=np.int64)
    previous = 0
    for c in text:
        counts[c] += 1
        pairs[previous, c] += 1
        previous = c
    return counts, pairs


def as_bytes(text):
    return np.frombuffer(text.encode(), dtype=np.uint8)


def table_text(g, rows, columns):
    lines = [",".join(f"{v:.2f}" for v in row) + "\n" for row in 100 * g.random((rows, columns))]
    return as_bytes("".join(lines)).astype(np.int64)


PROGRAMS = (
    Own(adler32, lambda g, n: (g.integers(0, 256, n).astype(np.uint8),), 60000, 9),
    Own(crc16, lambda g, n: (g.integers(0, 256, n).astype(np.uint8), 0xA001), 12000, 9),
    Own(parse_integers, lambda g, n: (as_bytes(" ".join(map(str, g.integers(-9999, 9999, n)))),), 6000, 5),
    Own(column_sums, lambda g, n: (table_text(g, n, 4), 4), 2000, 3),
    Own(base64_decode, lambda g, n: (g.integers(0, 64, n * 4) + 32, np.arange(96, dtype=np.uint8) - 32),
        12000, 3),
    Own(xorshift, lambda g, n: (2463534242, np.zeros(n)), 40000, 5),
    Own(hash_words, lambda g, n: (g.integers(0, 2 ** 32, n, dtype=np.uint32), 42), 30000, 5),
    Own(longest_matches, lambda g, n: (g.integers(0, 3, n).astype(np.uint8), 64), 2500, 12),
    Own(decode_utf8, lambda g, n: (as_bytes("".join(map(chr, g.integers(32, 1200, n)))),), 25000, 9),
    Own(letter_counts, lambda g, n: (g.integers(97, 123, n).astype(np.uint8),), 50000, 9),
)
