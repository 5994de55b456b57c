"""Functions, classes and wrappers of random modules: how Python calls them without a call in the source."""

from __future__ import annotations

from typing import NamedTuple

# What all modules begin with, and small functions and classes

HEAD = '''\
import contextlib
import contextvars
import copy
import functools
import gc
import heapq
import io
import itertools
import operator
import pickle
import signal
import sys
import threading
import types
import warnings
import weakref
from collections import deque, namedtuple
from concurrent import futures
from dataclasses import dataclass

import numpy as np

LOG = []
OUT = io.StringIO()
TABLE = {}
LAST = HELD = None
SHOWN = []  # warnings: their order, and those of values that nobody reads, may differ
LOCK = threading.Semaphore(100)  # threads inside one another do not wait for each other
RANGE = np.arange(SIZE).astype("KIND")


class Problem(Exception):
    pass


class Box:
    shared = None

    def __init__(self):
        self.a = RANGE * 2.0
        self.b = 1.5
        self.z = self.gen = None
        self.d, self.l, self.h, self.st, self.dq = {}, [0.5], [], set(), deque(maxlen=3)


def log(*event):
    LOG.append(event)


def fit(value, like):
    if isinstance(value, np.ndarray) and value.shape == RANGE.shape:
        return value
    return like


k0 = Box()
'''
# Lines of handlers, finalizers and callbacks.
HANDLER = (
    "log('h', k0.b)", "TABLE['h'] = quiet(np.arange(5.0) + len(LOG))", "k0.z = quiet(np.arange(4.0))",
    "k0.b = 2.5",
    "log('h', type(k0.a).__name__, type(LAST).__name__)", "k0.l.append(quiet(np.arange(3.0)).sum())",
    "log(k0.d.get('k') is None)", "k0.d['k'] = quiet(RANGE)", "k0.a = None", "k0.a = RANGE + 1.0", "pass",
    "k0.l[-1] = None",
    "Box.shared = quiet(RANGE)", "log('t', k0.l[-1])", "log('h', [type(t).__name__ for t in k0.d.values()])",
)
HELPERS = {
    "Pair": 'Pair = namedtuple("Pair", "a b")\n',
    "Data": "@dataclass\nclass Data:\n    a: object\n    b: object\n",
    "Slotted": """\
class Slotted(Box):
    __slots__ = ("u", "w")

    def __init__(self):
        super().__init__()
        self.u = self.a
        self.w = None
""",
    "Field": """\
class Field:
    def __set_name__(self, owner, name):
        self.name = "_" + name
    DECO
    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return instance.__dict__.get(self.name)
    DECO
    def __set__(self, instance, value):
        log("field", self.name)
        instance.__dict__[self.name] = value
    def __delete__(self, instance):
        instance.__dict__.pop(self.name, None)
""",
    "VAR": 'VAR = contextvars.ContextVar("VAR", default=None)\n',
    "float_of": "def float_of(x):\n    return float(x[0])\n",
    "helper": "DECO\ndef helper(x, k):\n    helper.last = x * 0.5\n    k.b = x.sum()\n    return x\n",
    "keep": "DECO\ndef keep(k, name, value):\n    setattr(k, name, value)\n",
    "remember": "DECO\ndef remember(x):\n    global HELD\n    HELD = x\n",
    "recall": "DECO\ndef recall():\n    return HELD\n",
    "drive": "DECO\ndef drive(f, x, n):\n    for turn in range(n):\n        x = f(x) * 0.5\n    return x\n",
    "twice": "def twice(f):\n    DECO\n    def inner(x):\n        return f(f(x))\n    return inner\n",
    "solve": """\
def solve(g, x):
    low = best = None
    for turn in range(3):
        value = g(x + turn)
        if best is None or value < best:
            low, best = turn, value
    return best
""",
    "Later": """\
class Later:
    def __init__(self, f):
        self.f = f
    DECO
    def go(self, x):
        self.x = x
        self.out = self.f(x)
        return self.out
""",
    "Ctx": """\
class Ctx:
    def __init__(self, k, x):
        self.k, self.x = k, x
    DECO
    def __enter__(self):
        self.k.b = self.x.sum()
        return self.x * 2.0
    DECO
    def __exit__(self, kind, error, traceback):
        self.k.z = self.x + 1.0
        if error is not None:
            self.error = error.args
            log("error", self.error)
        return False
""",
    "Swallow": """\
class Swallow:
    def __init__(self, k):
        self.k = k
    def __enter__(self):
        return self
    DECO
    def __exit__(self, kind, error, traceback):
        self.k.err = error
        return kind is Problem
""",
    "scope": """\
@contextlib.contextmanager
DECO
def scope(k, value):
    before = k.b
    k.b = value
    try:
        yield value
    finally:
        k.b = before
        log("scope", k.b)
""",
    "walk": """\
DECO
def walk(x, k):
    k.b = x.sum()
    yield x * 2.0
    k.z = x
    try:
        yield x + k.b
    finally:
        log("walk", k.b)
""",
    "talk": """\
DECO
def talk(x, k):
    while True:
        try:
            got = yield x
            x = x + got
        except Problem as problem:
            k.err = problem.args
            return x
        finally:
            k.z = x
""",
    "chain": "DECO\ndef chain(x, k):\n    yield from walk(x, k)\n    k.b = x[0]\n"
        "    yield from [x, x * 0.5]\n",
    "Steps": """\
class Steps:
    def __init__(self, x, n):
        self.x, self.n = x, n
    def __iter__(self):
        return self
    DECO
    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        self.x = self.x * 0.5
        return self.x
    DECO
    def total(self):
        total = None
        for each in self:
            total = each if total is None else total + each
        return total
""",
    "later": "DECO\nasync def later(x, k):\n    k.b = x.sum()\n    return x * 2.0\n",
    "await_": """\
def await_(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
""",
    "quiet": "DECO\ndef quiet(x):\n    y = x * 2.0 + 1.0\n    y[0] = y.sum()\n    return y\n",
    "Gone": """\
class Gone:
    def __init__(self, a, b):
        self.a, self.b = a, b
    DECO
    def __del__(self):
        log("gone", self.b)
        HANDLER
""",
    # set again when it has run: else one might begin in the midst of another, and so on
    "on_timer": "__going, __timed = [], deque(maxlen=3)\n\n\ndef on_timer(number, frame):\n"
                "    __timed.append(quiet(np.arange(5.0)))\n    if __going:\n"
                "        signal.setitimer(signal.ITIMER_REAL, 0.0007)\n",
    "Lurker": """\
class Lurker:
    def __init__(self, a):
        self.a, self.me = a, self
    DECO
    def __del__(self):
        quiet(np.arange(6.0))
""",
    "on_error": "def on_error(kind, flag):\n    log(kind, flag)\n    HANDLER\n",
    "WRITER": """\
class Writer:
    DECO
    def write(self, text):
        log(text)
        HANDLER


WRITER = Writer()
""",
    # Called when the block is computed (docs/differences.md): not in the log, whose order is compared.
    "show": "def show(message, category, filename, lineno, file=None, line=None):\n"
        "    SHOWN.append(str(message))\n    HANDLER\n",
    "Stream": """\
class Stream:
    def write(self, text):
        log("w", text)
        HANDLER
        return len(text)
    def flush(self):
        pass
""",
    "signal": "def on_signal(number, frame):\n    log('signal')\n    HANDLER\n\n\n"
              "signal.signal(signal.SIGUSR1, on_signal)\n",
    "in_thread": """\
def in_thread(f):
    found = []
    def go():
        try:
            found.append(f())
        except Exception as error:
            found.append(error)
    thread = threading.Thread(target=go)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]
""",
}


# Methods that Python calls
#
# Each entry has the text of a method, whose name is NAME and whose body is BODY (DECO stands for decorators);
# expressions that call it, with what they return; statements that do. OBJ is an object of the class.


class Feature(NamedTuple):
    """What a class may have."""

    text: str
    calls: tuple[tuple[str, str], ...] = ()
    statements: tuple[str, ...] = ()
    returns: str = "A"
    state: str = "self"
    once: bool = False


def special(
    name: str, given: str = "", calls: tuple[tuple[str, str], ...] = (), statements: tuple[str, ...] = (),
    returns: str = "A", end: str = "", first: str = "x = fit(self.a, RANGE)",
) -> Feature:
    """Return a method that has one name in all classes."""
    head = f"    DECO\n    def {name}(self{given}):\n        {first}\n"
    text = head + f"        BODY\n        {end or 'return <r>'}\n"
    return Feature(text, calls, statements, returns, once=True)


FEATURES: tuple[Feature, ...] = (
    *[Feature("    DECO\n    def NAME(self, x):\n        BODY\n        return <r>\n",
              (("OBJ.NAME(<a>)", "A"), ("CLS.NAME(OBJ, <a>)", "A"), ("getattr(OBJ, 'NAME')(<a>)", "A"),
               ("operator.methodcaller('NAME', <a>)(OBJ)", "A"), ("OBJ.NAME(x=<a>)", "A")))] * 4,
    *[Feature("    DECO\n    def NAME(self, x):\n        BODY\n        return <r>\n",
              (("OBJ.NAME(<a>)", "S"),), returns="S")] * 2,
    Feature("    DECO\n    def NAME(self, x, scale=2.0, *, shift=None):\n        if shift is not None:\n"
            "            x = x + shift\n        BODY\n        return <r>\n",
            (("OBJ.NAME(<a>, 3.0)", "A"), ("OBJ.NAME(<a>, shift=0.5)", "A"), ("OBJ.half_NAME(<a>)", "A"))),
    Feature("    DECO\n    def _NAME(self, factor, x):\n        x = x * factor\n        BODY\n"
        "        return <r>\n"
            "    NAME = functools.partialmethod(_NAME, 0.5)\n", (("OBJ.NAME(<a>)", "A"),)),
    *[Feature("    @property\n    DECO\n    def NAME(self):\n        x = fit(self.a, RANGE)\n        BODY\n"
              "        return <r>\n", (("fit(OBJ.NAME, <a>)", "A"),))] * 3,
    Feature("    @property\n    DECO\n    def NAME(self):\n        x = fit(self.a, RANGE)\n        BODY\n"
            "        return <r>\n", (("OBJ.NAME", "S"),), returns="S"),
    Feature("    @functools.cached_property\n    DECO\n    def NAME(self):\n"
        "        x = fit(self.a, RANGE)\n        BODY\n"
            "        return <r>\n", (("fit(OBJ.NAME, <a>)", "A"),), ("OBJ.__dict__.pop('NAME', None)",)),
    Feature("    @property\n    DECO\n    def NAME(self):\n        return self.__dict__.get('_NAME')\n"
        "    @NAME.setter\n"
            "    DECO\n    def NAME(self, x):\n        BODY\n        self._NAME = x\n",
            (("fit(OBJ.NAME, <a>)", "A"),), ("OBJ.NAME = <a>", "OBJ.NAME = <a>\n<v> = OBJ.NAME\n"
                "<v> = fit(<v>, <x>)",
                                            "OBJ.NAME = None\n<B>"), returns="G"),
    Feature("    NAME = Field()\n", (("fit(OBJ.NAME, <a>)", "A"),),
            ("OBJ.NAME = <a>", "del OBJ.NAME"), returns="G"),
    Feature("    @classmethod\n    DECO\n    def NAME(cls, x):\n        BODY\n        return <r>\n",
            (("CLS.NAME(<a>)", "A"), ("OBJ.NAME(<a>)", "A")), state="k0"),
    Feature("    @staticmethod\n    DECO\n    def NAME(x):\n        BODY\n        return <r>\n",
            (("CLS.NAME(<a>)", "A"), ("OBJ.NAME(<a>)", "A")), state="k0"),
    Feature("    @functools.singledispatchmethod\n    def NAME(self, x):\n        return x * 1.0\n"
            "    @NAME.register\n    DECO\n    def _(self, x: np.ndarray):\n        BODY\n"
                "        return <r>\n",
            (("OBJ.NAME(<a>)", "A"),)),
    Feature("    @functools.lru_cache(maxsize=4)\n    DECO\n    def NAME(self, n):\n        x = RANGE * n\n"
        "        BODY\n"
            "        return <r>\n", (("fit(OBJ.NAME(2), <a>)", "A"),)),
    Feature("    @contextlib.contextmanager\n    def NAME(self, x):\n        before = self.a\n"
        "        self.a = x\n"
            "        BODY\n        try:\n            yield x\n        finally:\n"
                "            self.a = before\n",
            (), ("with OBJ.NAME(<a>) as <v>:\n    <B>",), returns="G"),
    Feature("    DECO\n    def NAME(self, x):\n        BODY\n        yield x\n        BODY\n"
        "        yield x + 1.0\n",
            (("next(OBJ.NAME(<a>))", "A"), ("list(OBJ.NAME(<a>))[-1]", "A")),
            ("for <v> in OBJ.NAME(<a>):\n    <B>", "OBJ.gen = OBJ.NAME(<a>)\n<v> = next(OBJ.gen)"),
            returns="G"),
    special("__call__", ", x", (("OBJ(<a>)", "A"),), first="pass"),
    special("__getitem__", ", key", (("fit(OBJ[0], <a>)", "A"),)),
    special("__setitem__", ", key, x", (), ("OBJ[0] = <a>", "OBJ['k'] = <a>"), "G",
            "self.d[key] = x", "pass"),
    special("__bool__", "", (),
            ("if OBJ:\n    <B>", "<v> = <a> if not OBJ else <a>", "while OBJ:\n    break"),
            "S", "return bool(<s> > <c>)"),
    special("__len__", "", (("len(OBJ)", "S"),), (), "S", "return int(abs(<s>) % 5)"),
    special("__eq__", ", other", (), ("log(OBJ == 1)", "log(OBJ in [1, 2])", "log([1, OBJ].index(OBJ))"), "S",
            "return bool(<s> > <c>)"),
    special("__lt__", ", other", (), ("log(len(sorted([OBJ, OBJ])))", "log(OBJ < 3)"), "S",
            "return bool(<s> > <c>)"),
    special("__add__", ", x", (("(OBJ + <a>)", "A"),), first="pass"),
    special("__sub__", ", x", (("(OBJ - <a>)", "A"),), (), "A", "return x - <a>", "pass"),
    Feature(
        "    __array_ufunc__ = None\n    DECO\n    def __radd__(self, x):\n        BODY\n"
            "        return <r>\n",
        (("((<a>) + OBJ)", "A"),), once=True),
    special("__iadd__", ", x", (), ("OBJ_ = OBJ\nOBJ_ += <a>",), "G", "return self", "pass"),
    special("__matmul__", ", x", (("(OBJ @ (<a>))", "S"),), (), "S", first="pass"),
    special("__neg__", "", (("fit(-OBJ, <a>)", "A"),)),
    special("__abs__", "", (("abs(OBJ)", "S"),), (), "S"),
    special("__contains__", ", x", (), ("log((<a>) in OBJ)",), "S", "return bool(<s> > <c>)", "pass"),
    special("__float__", "", (("float(OBJ)", "S"),), (), "S", "return float(<s>)"),
    special("__index__", "", (("(<a>)[OBJ]", "S"),), (), "S", "return int(abs(<s>) % 5)"),
    special("__repr__", "", (), ("log(f'{OBJ}')", "log(repr(OBJ))", "print(OBJ, file=OUT)"), "S",
            "return 'CLS {:.2f}'.format(<s>)"),
    special("__iter__", "", (("next(iter(OBJ))", "A"),),
            ("for <v> in OBJ:\n    <B>", "log([t for t in OBJ])"),
            "G", "yield x\n        yield x * 2.0"),
    special("__getattr__", ", name", (("fit(OBJ.zz1, <a>)", "A"),), ("log(getattr(OBJ, 'nothing', 3))",
            "log(hasattr(OBJ, 'zz2'))"), "A", "", "if not name.startswith('zz'):\n"
                "            raise AttributeError(name)\n"
            "        x = RANGE + 1.0"),
    Feature(
        "    DECO\n    def __setattr__(self, name, value):\n        log('set', name)\n"
        "        object.__setattr__(self, name, value)\n", returns="G", once=True),
    Feature("    DECO\n    def __setattr__(self, name, value):\n"
        "        if name == 'a' and value is not None:\n"
            "            value = value + 0.0\n        self.__dict__[name] = value\n", returns="G", once=True),
    Feature("    DECO\n    def __setattr__(self, name, value):\n        super().__setattr__(name, value)\n"
            "        TABLE['set'] = value\n", returns="G", once=True),
    Feature("    def __getattribute__(self, name):\n        if name == 'a':\n            log('get')\n"
            "        return super().__getattribute__(name)\n", returns="G", once=True),
    Feature("    @property\n    def a(self):\n        return self._a\n    @a.setter\n    DECO\n"
        "    def a(self, value):\n"
            "        log('a', value is None)\n        self._a = value\n", returns="G", once=True),
    Feature("    a = Field()\n", returns="G", once=True),
    Feature("    b = Field()\n", returns="G", once=True),
    Feature("    def __delattr__(self, name):\n        log('del', name)\n        super().__delattr__(name)\n",
            (), ("OBJ.z = <a>\ndel OBJ.z",), "G", once=True),
    Feature(
        "    DECO\n    def __enter__(self):\n        x = fit(self.a, RANGE)\n        BODY\n"
            "        self.z = x\n        return x\n"
        "    DECO\n    def __exit__(self, kind, error, traceback):\n        x = fit(self.z, RANGE)\n"
            "        BODY\n"
        "        log('exit', kind, error is None)\n        return False\n",
        (), ("with OBJ as <v>:\n    <B>", "try:\n    with OBJ as <v>:\n        <B>\n"
            "        raise Problem(<a>)\n"
             "except Problem as <q>:\n    log(<q>.args)"), "G", once=True),
    Feature("    def __array__(self, dtype=None, copy=None):\n        log('array')\n"
        "        return np.array(fit(self.a, RANGE))\n",
            (("np.add(OBJ, RANGE)[:1] + (<a>)", "A"), ("np.asarray(OBJ)[0]", "S")), returns="G", once=True),
)

# Overrides: methods of a subclass that call what they replace.
OVERRIDE = "    DECO\n    def NAME(self, x):\n        x = super().NAME(x)\n        BODY\n        return <r>\n"


# Wrappers: functions and classes that stand before a function
#
# `NAME` becomes the name of the wrapper. `deep` ones decorate what they return.

WRAPPERS = (
    """\
def NAME(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        log("in", f.__name__)
        out = f(*args, **kwargs)
        log("out", f.__name__)
        return out
    return inner
""",
    """\
def NAME(f):
    def inner(*args, **kwargs):
        out = f(*args, **kwargs)
        inner.last = out
        return out
    return inner
""",
    """\
def NAME(f):
    @functools.wraps(f)
    def inner(first, *args, **kwargs):
        return f(first, *args, **kwargs)
    return inner
""",
    """\
class NAME:
    def __init__(self, f):
        self.f = f
        self.calls = 0
        self.last = None
        functools.update_wrapper(self, f)
    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)
    def __call__(self, *args, **kwargs):
        self.calls += 1
        self.last = self.f(*args, **kwargs)
        return self.last
""",
    """\
def NAME(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        try:
            return f(*args, **kwargs)
        except Problem as problem:
            inner.problem = problem.args
            raise
        finally:
            inner.calls = getattr(inner, "calls", 0) + 1
    return inner
""",
    """\
def NAME(f):
    kept = {}
    @functools.wraps(f)
    def inner(*args):
        key = len(args)
        if key not in kept:
            kept[key] = f(*args)
        elif kept[key] is not None:
            kept[key] = kept[key] + 0.0 * f(*args)
        return kept[key]
    inner.kept = kept
    return inner
""",
    """\
def NAME(f):
    count = 0
    before = None
    @functools.wraps(f)
    def inner(*args, **kwargs):
        nonlocal count, before
        count += 1
        before = f(*args, **kwargs)
        return before
    return inner
""",
    """\
def NAME(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        out = f(*args, **kwargs)
        TABLE["last"] = out
        return out + 0.5 if isinstance(out, np.ndarray) else out
    return inner
""",
    """\
def NAME(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        args = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        return f(*args, **kwargs)
    return inner
""",
    """\
def NAME(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        for turn in range(2):
            try:
                return f(*args, **kwargs)
            except Problem as problem:
                TABLE["problem"] = problem
                if turn:
                    raise
    return inner
""",
    """\
def NAME(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        k0.z = None
        out = f(*args, **kwargs)
        if k0.z is None:
            k0.z = out
        return out
    return inner
""",
    """\
class NAME(contextlib.ContextDecorator):
    def __init__(self, f=None):
        self.f = f
    def __new__(cls, f=None):
        made = super().__new__(cls)
        made.f = None
        return made(f) if f is not None else made
    def __enter__(self):
        log("enter")
        return self
    def __exit__(self, *raised):
        log("exit", raised[0])
""",
    """\
def NAME(f):
    return jit(lambda *args, **kwargs: f(*args, **kwargs))
""",
    """\
def NAME(f):
    @jit
    @functools.wraps(f)
    def inner(*args, **kwargs):
        out = f(*args, **kwargs)
        k0.d["w"] = out
        return out
    return inner
""",
    """\
def NAME(f):
    @contextlib.contextmanager
    def around():
        log("before")
        try:
            yield
        finally:
            log("after")
    return around()(f)
""",
    """\
def NAME(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return f(*args, **kwargs)
    return inner
""",
    """\
def NAME(f):
    def inner(*args, **kwargs):
        made = functools.partial(f, *args, **kwargs)
        return made()
    inner.__wrapped__ = f
    return inner
""",
    """\
def NAME(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        result = [None]
        def run():
            result[0] = f(*args, **kwargs)
        run()
        return result[0]
    return inner
""",
    """\
def NAME(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        inner.pending = out = f(*args, **kwargs)
        log("after", out)
        return out
    inner.pending = None
    return inner
""",
)
