"""Plans by rule of thumb, to compare the search with: what is in memory follows from a rule, not from prices.

Knows: the memo table, shapes of well-known fused operators. Must not know: prices, the search.
Receives the memo table and the name of a rule; returns the values to keep in memory.

"all" computes everything in the kernel of whoever reads it, "no-redundancy" only what has one reader
(the heuristics FA and FNR of Boehm et al., PVLDB 11(12), 2018), "none" nothing, and "patterns" what
libraries have had fused operators for: axpy, chains of products, squared loss, cross entropy, sigmoids.
"""

from __future__ import annotations

from jitla.fusion.memo import Memo, members

RULES = ("none", "patterns", "all", "no-redundancy")

Pattern = tuple["str | Pattern", ...]
ANY = "?"
PATTERNS: tuple[Pattern, ...] = (
    ("add", ANY, ("multiply", ANY, ANY)),
    ("subtract", ANY, ("multiply", ANY, ANY)),
    ("matmul", ANY, ("matmul", ANY, ANY)),
    ("matmul", ANY, ("multiply", ANY, ("matmul", ANY, ANY))),
    ("matmul", ANY, ("subtract", ("matmul", ANY, ANY), ANY)),
    ("sum", ("multiply", ANY, ANY)),
    ("sum", ("multiply", ("multiply", ANY, ANY), ANY)),
    ("sum", ("multiply", ANY, ("log", ANY))),
    ("sum", ("square", ("subtract", ANY, ANY))),
    ("sum", ("power", ("subtract", ANY, ANY), ANY)),
    ("divide", ANY, ("add", ANY, ("exp", ("negative", ANY)))),
    ("multiply", ANY, ("divide", ANY, ("add", ANY, ("exp", ("negative", ANY))))),
)


def kept(rule: str, memo: Memo) -> int:
    """Return the computed values that `rule` keeps in memory."""
    if rule == "all":
        return 0
    if rule == "no-redundancy":
        return sum(1 << i for i in members(memo.computed) if memo.users[i].bit_count() > 1)
    inside = 0
    if rule == "patterns":
        for i in sorted(members(memo.computed), reverse=True):
            if not inside >> i & 1:
                inside |= max((_inner(pattern, i, memo) for pattern in PATTERNS), key=int.bit_count)
    return memo.computed & ~inside & ~_casts(memo)


def _casts(memo: Memo) -> int:
    """Return the casts that are part of the operators which read them, as NumPy casts on the way."""
    found = memo.set(h for h in memo.hops(memo.computed) if h.op.name == "cast" and h.meta.shape)
    return sum(1 << i for i in members(found) if all(
        (memo.loop[u] or 0) >> i & 1 for u in members(memo.users[i])))


def _inner(pattern: Pattern, at: int, memo: Memo) -> int:
    """Return the values inside the pattern that ends in value `at`; none if it does not match."""
    found = _match(pattern, at, memo)
    return 0 if found is None else found & ~(1 << at)


def _match(pattern: str | Pattern, at: int, memo: Memo) -> int | None:
    if isinstance(pattern, str):
        return 0
    hop = memo.values[at]
    if hop.op.name != pattern[0] or not memo.computed >> at & 1:
        return None
    operands = [memo.number[i] for i in hop.inputs if i in memo.number]
    turns = [operands, operands[::-1]] if hop.op.commutes else [operands]
    for turn in turns:
        if len(turn) == len(pattern) - 1:
            parts = [_part(p, o, at, memo) for p, o in zip(pattern[1:], turn, strict=True)]
            if None not in parts:
                return sum(p for p in parts if p is not None) | 1 << at
    return None


def _part(pattern: str | Pattern, operand: int, user: int, memo: Memo) -> int | None:
    """Match an operand; one inside the pattern has one reader, who may compute it."""
    if isinstance(pattern, str):
        return 0
    alone = memo.users[operand] == 1 << user and memo.fusable(user) >> operand & 1
    return _match(pattern, operand, memo) if alone else None
