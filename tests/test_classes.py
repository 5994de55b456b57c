"""Classes of fields are those of the standard library, but for when their methods are written."""

import copy
import dataclasses
import pickle
import sys

import pytest

from jitla.classes import dataclass as ours

WAYS = [{}, {"frozen": True}, {"slots": True}, {"frozen": True, "slots": True}, {"eq": False},
        {"frozen": True, "slots": True, "eq": False}, {"frozen": True, "slots": True, "kw_only": True}]
TEXT = """
@dataclass(**how)
class Base:
    "A point."
    x: int
    y: float = 2.5
    z: list = field(default_factory=list)
    w: int = field(default=3, compare=False, repr=False)
    v: int = field(default=7, init=False)

    @property
    def twice(self):
        return 2 * self.x

    def __post_init__(self):
        if self.x < 0:
            raise ValueError("negative")

@dataclass(**how)
class More(Base):
    "A point with a name."
    name: str = "p"
"""


def both(how):
    made = []
    for dataclass in (dataclasses.dataclass, ours):
        names = {"dataclass": dataclass, "field": dataclasses.field, "how": how, "__name__": __name__}
        exec("from __future__ import annotations\n" + TEXT, names)
        made.append((names["Base"], names["More"]))
    return made


def told(act):
    """What `act` returns, or raises, in words."""
    try:
        return repr(act())
    except Exception as error:
        return type(error).__name__, str(error)


def calls(base, more):
    """Uses of both classes, in an order that nothing was written before."""
    yield lambda: base(1) == base(1)
    yield lambda: base(1)
    yield lambda: base(1) == base(2)
    yield lambda: base(1, 2, [3], 4)
    yield lambda: base(x=1, y=2, z=[3], w=4)
    yield lambda: more(x=1, name="q")
    yield lambda: more(1, 2.0, [], 4, "q")
    yield lambda: base()
    yield lambda: base(1, 2, 3, 4, 5, 6)
    yield lambda: base(-1)
    yield lambda: base(1) == more(1)
    yield lambda: base(1) != base(1, w=9)
    yield lambda: hash(base(x=1, z=()))== hash(base(x=1, z=()))
    yield lambda: setattr(base(x=1), "x", 5)
    yield lambda: setattr(more(x=1), "x", 5)
    yield lambda: delattr(more(x=1), "y")
    yield lambda: dataclasses.replace(more(x=1), name="r")
    yield lambda: dataclasses.asdict(more(x=1))
    yield lambda: [(f.name, f.type, f.kw_only) for f in dataclasses.fields(more)]
    yield lambda: (base.__match_args__, more.__match_args__, dataclasses.is_dataclass(more))
    yield lambda: more(x=4).twice
    yield lambda: (base(x=1).v, more(x=1).v)
    yield lambda: copy.copy(more(x=1, z=[1]))
    yield lambda: copy.deepcopy(more(x=1, z=[1])).z
    yield lambda: sorted(getattr(more, "__slots__", ()))
    yield lambda: hasattr(more(x=1), "__dict__")


@pytest.mark.parametrize("how", WAYS, ids=str)
def test_classes_of_fields_are_those_of_the_standard_library(how):
    theirs, own = both(how)
    for usual, mine in zip(calls(*theirs), calls(*own), strict=True):
        assert told(mine) == told(usual)


@pytest.mark.parametrize("how", [{"frozen": True, "slots": True}, {"frozen": True}, {"slots": True}], ids=str)
def test_records_travel(how, monkeypatch):
    _, (base, _) = both(how)
    monkeypatch.setattr(sys.modules[__name__], "Base", base, raising=False)
    assert pickle.loads(pickle.dumps(base(1, z=[2]))) == base(1, z=[2])


def test_patterns_see_fields():
    _, (base, more) = both({"frozen": True, "slots": True})
    match more(1, 2.0):
        case base(x, y):
            assert (x, y) == (1, 2.0)
        case _:
            raise AssertionError
