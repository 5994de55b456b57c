"""Random functions with loops over slices."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

DEPTH = 6
NAMES = ("s", "t", "u")


class Slices:
    """Writes one random function."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.axes = self.random.choice((1, 1, 2))
        self.lines: list[str] = []

    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def index(self) -> str:
        return self.pick("k", "k", "k", "k - 1", "k + 1", "0", "-1", "n - 1 - k", "k - m")

    def place(self, name: str, index: str = "") -> str:
        cut = {"q": self.pick("1:", ":-1")}.get(name, ":")
        return f"{name}[{', '.join([cut] + [':'] * (self.axes - 1) + [index or self.index()])}]"

    def atom(self) -> str:
        return self.pick(self.place("p"), self.place("q"), self.place("q"), self.place("r"), self.place("p"),
                         "w", f"w[{', '.join([':'] * self.axes)}]", "h", "m", "0.5", "2", "k", *NAMES)

    def value(self, depth: int = 2) -> str:
        if not depth or self.random.random() < 0.25:
            return self.atom()
        op = self.pick("+", "-", "*", "*", "/")
        made = f"{self.value(depth - 1)} {op} {self.value(depth - 1)}"
        return self.pick(made, f"({made})", f"-({made})")

    def statement(self, indent: str, nested: bool = False) -> None:
        roll = self.random.random()
        if roll < 0.35:
            self.lines.append(f"{indent}{self.random.choice(NAMES)} = {self.value()}")
        elif roll < 0.45:
            name = self.random.choice(NAMES)
            self.lines.append(f"{indent}{name} {self.pick('+', '-', '*')}= {self.value(1)}")
        elif roll < 0.5:
            self.lines.append(f"{indent}s = t = {self.pick('0.0', '0', self.value(1))}")
        elif roll < 0.55:
            self.lines.append(f"{indent}{self.place('p')} {self.pick('+', '*')}= {self.value(1)}")
        elif roll < 0.6:
            self.lines.append(f"{indent}w[{', '.join([':'] * self.axes)}] = {self.value(1)}")
        elif roll < 0.75 and not nested:
            self.lines.append(f"{indent}if {self.pick('k > 0', 'k < n - 1', 'k == m', 'k > 0 and k != 3')}:")
            self.statement(indent + "    ", True)
            if self.random.random() < 0.4:
                self.lines.append(f"{indent}else:")
                self.statement(indent + "    ", True)
        else:
            index = self.pick("k", "k", "k", "k", "k - 1", "n - 1 - k")
            self.lines.append(f"{indent}{self.place(self.pick('p', 'r', 'r'), index)} = {self.value()}")

    def text(self) -> str:
        self.lines = ["def f(p, q, r, w, n, h, m):"]
        for name in NAMES:
            begun = self.pick("0.0", "1", "w", self.place("p", "0"), "h", "w * 2")
            self.lines.append(f"    {name} = {begun}")
        for _ in range(self.random.randint(1, 2)):
            source = self.pick("range(n)", "range(1, n)", "range(n - 2, -1, -1)", "range(1, n - 1, 2)",
                               "range(p.shape[0])", "range(1, n)")
            self.lines.append(f"    for k in {source}:")
            for _ in range(self.random.randint(1, 5)):
                self.statement("        ")
        self.lines.append(f"    return {self.pick('k', 'k', 'n', 'n', 'h', 's')},")
        return "\n".join(self.lines) + "\n"

    def given(self, seed: int, harsh: bool) -> dict[str, Any]:
        """Return arguments of one call."""
        chosen = np.random.default_rng(seed)
        lanes = (int(chosen.integers(1, 6)) if harsh else 5, 3)[:self.axes]
        deep = {"p": (*lanes, DEPTH), "q": (lanes[0] + 1, *lanes[1:], DEPTH), "r": (*lanes, DEPTH)}
        deep["w"] = lanes
        made: dict[str, Any] = {name: 1.0 + chosen.random(shape) for name, shape in deep.items()}
        if harsh and seed % 3 == 0:
            made["r"].flat[chosen.integers(0, made["r"].size)] = chosen.choice([np.inf, np.nan, 0.0, 1e300])
        if harsh and seed % 5 == 0:
            made["p"] = np.asfortranarray(made["p"])
            made["q"] = made["q"][::-1]
        if harsh and seed % 7 == 0:
            made["r"] = made["p"] if seed % 2 else made["p"][..., ::-1]
        if harsh and seed % 11 == 0:
            made["w"] = made["p"][..., 0]
        n = DEPTH if not harsh else int(chosen.integers(0, DEPTH + 2))
        return made | {"n": n, "h": 0.5 if not harsh or seed % 2 else np.float64(-1.5),
                       "m": 1 if not harsh else int(chosen.integers(-2, 3))}
