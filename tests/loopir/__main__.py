"""Random nests: under legal schedules, under relaxed ones, and under schedules that have to be refused."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable

from tests.loopir.agree import agree
from tests.loopir.loosened import near
from tests.loopir.planted import refused

PARTS: tuple[tuple[str, Callable[[int, Counter[str]], str | None]], ...] = (
    ("nests under random schedules have the bits of the interpreter, of machine code and of NumPy", agree),
    ("nests under relaxed schedules are within rounding, by the interpreter and by machine code alike",
     near),
    ("planted schedules that change a result are refused", refused))


def main() -> None:
    """Draw as many for each part, and say how often what was taken or refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for said, part in PARTS:
        taken: Counter[str] = Counter()
        for seed in range(asked.seed, asked.seed + asked.count):
            wrong = part(seed, taken)
            if wrong:
                raise SystemExit(f"seed {seed}: {wrong}")
        print(f"{asked.count} {said}:", ", ".join(f"{k} {n}" for k, n in sorted(taken.items())), flush=True)


if __name__ == "__main__":
    main()
