"""The LRU cache of the compiler: eviction by number and by bytes."""

from __future__ import annotations

from jitla.recompile import LruCache


def test_what_was_not_used_for_longest_goes() -> None:
    kept: LruCache[str] = LruCache(2)
    kept.put(1, "one")
    kept.put(2, "two")
    assert kept.get(1) == "one"
    kept.put(3, "three")
    assert kept.values() == ["one", "three"] and 2 not in kept and kept.get(2) is None
    assert kept.evicted == 1


def test_bytes_are_bounded_too() -> None:
    kept: LruCache[str] = LruCache(10, max_bytes=100)
    for key, nbytes in ((1, 40), (2, 40), (1, 10), (3, 50)):
        kept.put(key, str(key), nbytes)
    assert kept.nbytes == 100 and len(kept) == 3 and kept.evicted == 0
    kept.put(4, "4", 20)
    assert kept.values() == ["1", "3", "4"] and kept.nbytes == 80
    kept.put(5, "5", 1000)  # larger than the room: it is kept alone
    assert kept.values() == ["5"] and kept.nbytes == 1000
    kept.put(6, "6", 1)
    assert kept.values() == ["6"] and kept.nbytes == 1
    kept.clear()
    assert len(kept) == kept.nbytes == 0
