"""Tools for testing instrumentation: functions from text, a transparent hook, operands that log."""

from __future__ import annotations

import itertools
import linecache
import re
import textwrap
import traceback
import warnings
from typing import Any

_numbers = itertools.count()


def define(source: str, name: str = "f", **names: Any) -> Any:
    """Run `source` as a file of its own and return what it calls `name`."""
    source = textwrap.dedent(source)
    filename = f"<snippets-{next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    namespace: dict[str, Any] = {"__name__": "corpus", **names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(source, filename, "exec"), namespace)
    return namespace[name]


class Hook:
    """Does what the original function would do without hooks, and records the calls."""

    def __init__(self, all_safe: bool = True) -> None:
        self.all_safe = all_safe  # whether every parameter's class runs no code
        self.seen: list[tuple[Any, ...]] = []

    def call(self, f: Any) -> Any:
        self.seen.append(("call", f))
        return f

    def inplace(self, op: Any, target: Any, value: Any) -> Any:
        self.seen.append(("inplace", op.__name__))
        return op(target, value)

    def setitem(self, value: Any, obj: Any, key: Any) -> None:
        self.seen.append(("setitem", key))
        obj[key] = value

    def delitem(self, obj: Any, key: Any) -> None:
        self.seen.append(("delitem", key))
        del obj[key]

    def setattr(self, value: Any, obj: Any, name: str) -> None:
        self.seen.append(("setattr", name))
        setattr(obj, name, value)

    def delattr(self, obj: Any, name: str) -> None:
        self.seen.append(("delattr", name))
        delattr(obj, name)

    def is_same(self, a: Any, b: Any) -> bool:
        self.seen.append(("is_same",))
        return a is b

    def end_iteration(self) -> None:
        self.seen.append(("end_iteration",))

    def split_point(self) -> None:
        self.seen.append(("split_point",))

    def attribute(self, obj: Any, name: str, usage: str = "") -> Any:
        self.seen.append(("attribute", name))
        return getattr(obj, name)

    def lift(self, value: Any, usage: str) -> Any:
        self.seen.append(("lift", usage))
        return value

    def are_safe(self, *values: Any) -> bool:
        if not self.all_safe:
            self.seen.append(("are_safe", *values))
        return self.all_safe

    has_safe_uses = are_safe

    def __getattr__(self, name: str) -> Any:
        if name not in ("materialise", "element", "summand", "yield_value", "await_value", "enter_context",
                        "iterate", "unpacked_elements", "hashed_element", "class_argument",
                        "flush_unless_safe", "star_mapping", "star_elements", "star_arguments"):
            raise AttributeError(name)

        def same(value: Any) -> Any:
            self.seen.append((name, value))
            return value

        return same

    def names(self) -> list[str]:
        """Names of the hooks called, in order."""
        return [each[0] for each in self.seen]


class Probe:
    """Logs every operation on it; results are probes too."""

    def __init__(self, log: list[str], name: str) -> None:
        object.__setattr__(self, "log", log)
        object.__setattr__(self, "name", name)

    def _made(self, what: str) -> Probe:
        self.log.append(what)
        return Probe(self.log, f"({what})")

    def __repr__(self) -> str:
        return self.name

    def __getattr__(self, attr: str) -> Probe:
        if attr.startswith("__"):
            raise AttributeError(attr)
        return self._made(f"{self.name}.{attr}")

    def __setattr__(self, attr: str, value: Any) -> None:
        self.log.append(f"{self.name}.{attr} = {value!r}")

    def __delattr__(self, attr: str) -> None:
        self.log.append(f"del {self.name}.{attr}")

    def __getitem__(self, key: Any) -> Probe:
        return self._made(f"{self.name}[{key!r}]")

    def __setitem__(self, key: Any, value: Any) -> None:
        self.log.append(f"{self.name}[{key!r}] = {value!r}")

    def __delitem__(self, key: Any) -> None:
        self.log.append(f"del {self.name}[{key!r}]")

    def __call__(self, *args: Any, **kwargs: Any) -> Probe:
        return self._made(f"{self.name}(*{args!r}, **{kwargs!r})")

    def __bool__(self) -> bool:
        self.log.append(f"bool {self.name}")
        return len(self.log) % 3 != 0

    def __iter__(self) -> Any:
        self.log.append(f"iter {self.name}")
        for i in range(3):
            self.log.append(f"next {self.name}")
            yield Probe(self.log, f"{self.name}#{i}")

    def __enter__(self) -> Probe:
        return self._made(f"enter {self.name}")

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        self.log.append(f"exit {self.name} {kind}")
        return False

    async def __aenter__(self) -> Probe:
        return self._made(f"aenter {self.name}")

    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> bool:
        self.log.append(f"aexit {self.name} {kind}")
        return False

    async def __aiter__(self) -> Any:
        for i in range(3):
            self.log.append(f"anext {self.name}")
            yield Probe(self.log, f"{self.name}#{i}")

    def __await__(self) -> Any:
        self.log.append(f"await {self.name}")
        yield self.name
        return self._made(f"awaited {self.name}")

    def __index__(self) -> int:
        self.log.append(f"index {self.name}")
        return 1

    def __format__(self, spec: str) -> str:
        self.log.append(f"format {self.name} {spec}")
        return self.name

    def __hash__(self) -> int:
        self.log.append(f"hash {self.name}")
        return 7


def _binary(name: str) -> None:
    def method(self: Probe, other: Any) -> Probe:
        return self._made(f"{self.name}.{name}({other!r})")

    setattr(Probe, name, method)


for _op in ("add sub mul matmul truediv floordiv mod pow lshift rshift and or xor").split():
    _binary(f"__{_op}__")
    _binary(f"__r{_op}__")
    _binary(f"__i{_op}__")
for _op in ("lt le gt ge eq ne").split():
    _binary(f"__{_op}__")
for _op in ("neg", "pos", "invert"):
    setattr(Probe, f"__{_op}__", lambda self, _op=_op: self._made(f"{_op} {self.name}"))


class Outcome:
    """What a call did: result or exception with its lines, and the log of the probes."""

    def __init__(self, fn: Any, *names: str) -> None:
        self.log: list[str] = []
        file = fn.__code__.co_filename
        probes = [Probe(self.log, name) for name in names]
        try:
            self.result: Any = self.drain(fn(*probes))
            self.error: Any = None
        except Exception as error:
            self.result = None
            frames = traceback.extract_tb(error.__traceback__)
            lines = [(f.lineno, f.name) for f in frames if f.filename == file]
            self.error = (type(error), str(error), lines)

    def drain(self, result: Any) -> Any:
        """Run generators and coroutines to their end."""
        if hasattr(result, "__anext__"):
            return [self.drain(each) for each in self.steps(result)]
        if hasattr(result, "send"):
            out: list[Any] = []
            try:
                while True:
                    out.append(self.drain(result.send(None)))
            except StopIteration as stop:
                return [*out, ("return", self.drain(stop.value))]
        if isinstance(result, (list, tuple)):
            return [self.drain(each) for each in result]
        return result if isinstance(result, (int, str, float)) else nameless(repr(result))

    def steps(self, result: Any) -> Any:
        """Items of an asynchronous generator."""
        while True:
            step = result.__anext__()
            try:
                while True:
                    self.log.append(f"awaiting {step.send(None)}")
            except StopIteration as stop:
                yield stop.value
            except StopAsyncIteration:
                return

    def facts(self) -> tuple[Any, ...]:
        """Everything that can be compared."""
        return [nameless(line) for line in self.log], self.error, self.result


def nameless(text: str) -> str:
    """`text` without addresses."""
    return re.sub("0x[0-9a-f]+", "0x", text)
