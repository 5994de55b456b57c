"""What the instruction set means, one instruction and one step at a time, from bits.

Slow and plain on purpose, and independent: it imports nothing of jitla, works out widths and places of fields
for itself from the standard keys, and runs instructions in the order of the stream, whatever tokens say.
`OtherInterpreter` differs where implementations in hardware do: programs that keep the rules cannot tell.
"""

from __future__ import annotations

import numpy as np

COMMON = [("opcode", 3), ("pop_prev", 1), ("pop_next", 1), ("push_prev", 1), ("push_next", 1)]
LOAD, STORE, GEMM, FINISH, ALU = range(5)
UOP, WGT, INP, ACC, OUT, ACC8 = range(6)


def widths(config: dict) -> dict[str, int]:
    """Bits of indices: log2 of how many elements a memory has."""
    batch, block = config["LOG_BATCH"], config["LOG_BLOCK"]
    return {
        "uop": config["LOG_UOP_BUFF_SIZE"] - 5 + 3,
        "inp": config["LOG_INP_BUFF_SIZE"] - batch - block - config["LOG_INP_WIDTH"] + 3,
        "wgt": config["LOG_WGT_BUFF_SIZE"] - 2 * block - config["LOG_WGT_WIDTH"] + 3,
        "acc": config["LOG_ACC_BUFF_SIZE"] - batch - block - config["LOG_ACC_WIDTH"] + 3,
    }


def tables(config: dict) -> dict[int, tuple[list, list]]:
    """Fields of the two words, by opcode."""
    w = widths(config)
    memory = ([("id", 3), ("sram", 16), ("dram", 32)],
              [("y", 16), ("x", 16), ("stride", 16), ("top", 4), ("bottom", 4), ("left", 4), ("right", 4)])
    loop = [("reset", 1), ("bgn", w["uop"]), ("end", w["uop"] + 1), ("outer", 14), ("inner", 14)]
    gemm = [("do", w["acc"]), ("di", w["acc"]), ("so", w["inp"]), ("si", w["inp"]), ("wo", w["wgt"]),
            ("wi", w["wgt"])]
    alu = [("do", w["acc"]), ("di", w["acc"]), ("so", w["acc"]), ("si", w["acc"]), ("op", 3), ("use", 1),
           ("imm", 16)]
    return {LOAD: memory, STORE: memory, GEMM: (loop, gemm), ALU: (loop, alu), FINISH: ([], [])}


def parse(config: dict, low: int, high: int) -> dict[str, int]:
    """Values of the fields of one instruction."""
    first, second = tables(config)[low & 7]
    values, at = {}, 0
    for name, width in COMMON + first:
        values[name] = low >> at & (1 << width) - 1
        at += width
    at = 0
    for name, width in second:
        values[name] = high >> at & (1 << width) - 1
        at += width
    if values.get("imm", 0) >= 1 << 15:
        values["imm"] -= 1 << 16
    return values


class Interpreter:
    """All memories as NumPy arrays, and one method for each kind of instruction."""

    def __init__(self, config: dict, image: np.ndarray) -> None:
        self.config, self.image, self.w = config, image.copy(), widths(config)
        batch, block = 1 << config["LOG_BATCH"], 1 << config["LOG_BLOCK"]
        self.is_float = config.get("DIALECT") == "float"

        def dtype(log: int):
            return np.dtype("f4") if self.is_float else np.dtype(f"i{(1 << log) // 8}")

        small, accumulator = dtype(config["LOG_INP_WIDTH"]), dtype(config["LOG_ACC_WIDTH"])
        self.forms = {UOP: ((), np.dtype("u4")), WGT: ((block, block), dtype(config["LOG_WGT_WIDTH"])),
                      INP: ((batch, block), small), ACC: ((batch, block), accumulator),
                      OUT: ((batch, block), small), ACC8: ((batch, block), small)}
        counts = {UOP: self.w["uop"], WGT: self.w["wgt"], INP: self.w["inp"], ACC: self.w["acc"]}
        self.chip = {m: np.zeros((1 << count, *self.forms[m][0]), self.forms[m][1])
                     for m, count in counts.items()}
        self.block = block

    def run(self, words: np.ndarray) -> np.ndarray:
        for low, high in words.tolist():
            values = parse(self.config, low, high)
            getattr(self, ["load", "store", "gemm", "finish", "alu"][values["opcode"]])(values)
        return self.image

    def finish(self, i: dict) -> None:
        pass

    def element(self, memory: int, index: int) -> slice:
        shape, dtype = self.forms[memory]
        size = int(np.prod(shape, dtype=int)) * dtype.itemsize
        return slice(index * size, index * size + size)

    def load(self, i: dict) -> None:
        if i["x"] == 0:
            return
        shape, dtype = self.forms[i["id"]]
        chip = self.chip[ACC if i["id"] == ACC8 else i["id"]]
        at = i["sram"]
        for y in range(-i["top"], i["y"] + i["bottom"]):
            for x in range(-i["left"], i["x"] + i["right"]):
                if 0 <= y < i["y"] and 0 <= x < i["x"]:
                    place = self.element(i["id"], i["dram"] + y * i["stride"] + x)
                    chip[at] = self.image[place].view(dtype).reshape(shape)
                else:
                    chip[at] = 0
                at += 1

    def store(self, i: dict) -> None:
        at = i["sram"]
        for y in range(i["y"]):
            for x in range(i["x"]):
                low = self.to_store(at)
                place = self.element(OUT, i["dram"] + y * i["stride"] + x)
                self.image[place] = np.ascontiguousarray(low).reshape(-1).view(np.uint8)
                at += 1

    def steps(self, i: dict):
        """Indices of destination, source and weight, step by step."""
        w = self.w
        source = max(w["acc"], w["inp"])
        for outer in range(i["outer"]):
            for inner in range(i["inner"]):
                for u in range(i["bgn"], i["end"]):
                    bits = int(self.chip[UOP][u])
                    dst = bits & (1 << w["acc"]) - 1
                    src = bits >> w["acc"] & (1 << source) - 1
                    wgt = bits >> w["acc"] + source & (1 << w["wgt"]) - 1
                    yield (dst + outer * i["do"] + inner * i["di"], src + outer * i["so"] + inner * i["si"],
                           wgt + outer * i.get("wo", 0) + inner * i.get("wi", 0))

    def gemm(self, i: dict) -> None:
        acc, inp, weights = self.chip[ACC], self.chip[INP], self.chip[WGT]
        for dst, src, wgt in self.steps(i):
            if i["reset"]:
                self.reset(dst, src, wgt)
                continue
            if self.is_float:
                acc[dst] += self.tree(inp[src][:, None, :] * weights[wgt][None])
            else:
                wide = acc[dst].astype(np.int64)
                wide += (inp[src].astype(np.int64)[:, None, :] * weights[wgt].astype(np.int64)[None]).sum(-1)
                acc[dst] = wide.astype(acc.dtype)
            self.computed(dst)

    def tree(self, terms: np.ndarray) -> np.ndarray:
        """Lane i and lane i + n/2 are added, then so on with half as many."""
        lanes = [terms[..., i] for i in range(self.block)]
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [lanes[i] + lanes[i + half] for i in range(half)]
        return lanes[0]

    def alu(self, i: dict) -> None:
        acc = self.chip[ACC]
        bits = 8 * acc.dtype.itemsize
        for dst, src, _ in self.steps(i):
            if self.is_float:
                operand = (np.array(i["imm"] & 0xFFFF, np.uint32) << np.uint32(16)).view(np.float32)
                second = operand if i["use"] else acc[src].copy()
                with np.errstate(all="ignore"):
                    acc[dst] = [np.minimum, np.maximum, np.add, None, np.multiply][i["op"]](acc[dst], second)
                continue
            a = acc[dst].astype(np.int64)
            b = np.full_like(a, i["imm"]) if i["use"] else acc[src].astype(np.int64)
            if i["op"] == 3:
                b = self.amount(i, b)
                left = (a << np.clip(-b, 0, bits)).astype(acc.dtype)
                result = np.where(b >= 0, a >> np.clip(b, 0, bits), left)
            else:
                result = [np.minimum, np.maximum, np.add, None, self.multiply][i["op"]](a, b)
            acc[dst] = result.astype(acc.dtype)
            self.computed(dst)

    def amount(self, i: dict, b: np.ndarray) -> np.ndarray:
        return b

    def multiply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a * b

    def computed(self, dst: int) -> None:
        """An element of the accumulator has a new value."""

    def reset(self, dst: int, src: int, wgt: int) -> None:
        self.chip[ACC][dst] = 0

    def to_store(self, index: int) -> np.ndarray:
        return self.chip[ACC][index].astype(self.forms[OUT][1])


class OtherInterpreter(Interpreter):
    """The core in C for Xilinx ("hls") or in Chisel ("chisel"), where they differ from the functional one.

    What is stored is a memory of its own, which only GEMM and ALU fill; shifts look at five bits; there is no
    product, no load of bytes into the accumulator, and zeros are put around inputs only.
    """

    def __init__(self, config: dict, image: np.ndarray, which: str) -> None:
        super().__init__(config, image)
        self.which = which
        shape, dtype = self.forms[OUT]
        self.out = np.full((len(self.chip[ACC]), *shape), 85, dtype)  # whatever was there

    def load(self, i: dict) -> None:
        if i["id"] == UOP:
            i = i | {"y": 1, "top": 0, "bottom": 0, "left": 0, "right": 0}
        elif i["id"] == WGT and self.which == "hls":
            i = i | {"top": 0, "bottom": 0, "left": 0, "right": 0}
        if i["id"] != ACC8:
            super().load(i)

    def amount(self, i: dict, b: np.ndarray) -> np.ndarray:
        if self.which == "hls":
            return (b + 16) % 32 - 16
        return np.where(i["use"] and i["imm"] < 0, -(-b % 32), b % 32)

    def multiply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a

    def computed(self, dst: int) -> None:
        self.out[dst] = self.chip[ACC][dst].astype(self.out.dtype)

    def reset(self, dst: int, src: int, wgt: int) -> None:
        if self.which == "hls":
            products = (self.chip[INP][src].astype(np.int64)[:, None, :] * self.chip[WGT][wgt][None]).sum(-1)
            self.out[dst] = (self.chip[ACC][dst] + products).astype(self.out.dtype)
        super().reset(dst, src, wgt)

    def to_store(self, index: int) -> np.ndarray:
        return self.out[index]


def interpret(config: dict, words: np.ndarray, image: np.ndarray) -> np.ndarray:
    """DRAM after the stream `words`."""
    return Interpreter(config, image).run(words)


def interpret_other(config: dict, words: np.ndarray, image: np.ndarray, which: str) -> np.ndarray:
    """DRAM after the stream `words` on the implementation `which`: "hls" or "chisel"."""
    return OtherInterpreter(config, image, which).run(words)
