"""Wrappers: functions and classes that stand before a function, as decorators.

`NAME` becomes the name of the wrapper. `deep` ones decorate what they return.
"""

from __future__ import annotations

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
