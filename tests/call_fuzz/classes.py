"""Methods of classes: what Python calls without saying so, and what it takes for calling them.

Each entry has the text of a method, whose name is NAME and whose body is BODY (DECO stands for decorators);
expressions that call it, with what they return; statements that do. OBJ is an object of the class.
"""

from __future__ import annotations

from typing import NamedTuple


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
    return Feature(head + f"        BODY\n        {end or 'return <r>'}\n", calls, statements, returns, once=True)


FEATURES: tuple[Feature, ...] = (
    *[Feature("    DECO\n    def NAME(self, x):\n        BODY\n        return <r>\n",
              (("OBJ.NAME(<a>)", "A"), ("CLS.NAME(OBJ, <a>)", "A"), ("getattr(OBJ, 'NAME')(<a>)", "A"),
               ("operator.methodcaller('NAME', <a>)(OBJ)", "A"), ("OBJ.NAME(x=<a>)", "A")))] * 4,
    *[Feature("    DECO\n    def NAME(self, x):\n        BODY\n        return <r>\n",
              (("OBJ.NAME(<a>)", "S"),), returns="S")] * 2,
    Feature("    DECO\n    def NAME(self, x, scale=2.0, *, shift=None):\n        if shift is not None:\n"
            "            x = x + shift\n        BODY\n        return <r>\n",
            (("OBJ.NAME(<a>, 3.0)", "A"), ("OBJ.NAME(<a>, shift=0.5)", "A"), ("OBJ.half_NAME(<a>)", "A"))),
    Feature("    DECO\n    def _NAME(self, factor, x):\n        x = x * factor\n        BODY\n        return <r>\n"
            "    NAME = functools.partialmethod(_NAME, 0.5)\n", (("OBJ.NAME(<a>)", "A"),)),
    *[Feature("    @property\n    DECO\n    def NAME(self):\n        x = fit(self.a, RANGE)\n        BODY\n"
              "        return <r>\n", (("fit(OBJ.NAME, <a>)", "A"),))] * 3,
    Feature("    @property\n    DECO\n    def NAME(self):\n        x = fit(self.a, RANGE)\n        BODY\n"
            "        return <r>\n", (("OBJ.NAME", "S"),), returns="S"),
    Feature("    @functools.cached_property\n    DECO\n    def NAME(self):\n        x = fit(self.a, RANGE)\n        BODY\n"
            "        return <r>\n", (("fit(OBJ.NAME, <a>)", "A"),), ("OBJ.__dict__.pop('NAME', None)",)),
    Feature("    @property\n    DECO\n    def NAME(self):\n        return self.__dict__.get('_NAME')\n    @NAME.setter\n"
            "    DECO\n    def NAME(self, x):\n        BODY\n        self._NAME = x\n",
            (("fit(OBJ.NAME, <a>)", "A"),), ("OBJ.NAME = <a>", "OBJ.NAME = <a>\n<v> = OBJ.NAME\n<v> = fit(<v>, <x>)",
                                            "OBJ.NAME = None\n<B>"), returns="G"),
    Feature("    NAME = Field()\n", (("fit(OBJ.NAME, <a>)", "A"),), ("OBJ.NAME = <a>", "del OBJ.NAME"), returns="G"),
    Feature("    @classmethod\n    DECO\n    def NAME(cls, x):\n        BODY\n        return <r>\n",
            (("CLS.NAME(<a>)", "A"), ("OBJ.NAME(<a>)", "A")), state="k0"),
    Feature("    @staticmethod\n    DECO\n    def NAME(x):\n        BODY\n        return <r>\n",
            (("CLS.NAME(<a>)", "A"), ("OBJ.NAME(<a>)", "A")), state="k0"),
    Feature("    @functools.singledispatchmethod\n    def NAME(self, x):\n        return x * 1.0\n"
            "    @NAME.register\n    DECO\n    def _(self, x: np.ndarray):\n        BODY\n        return <r>\n",
            (("OBJ.NAME(<a>)", "A"),)),
    Feature("    @functools.lru_cache(maxsize=4)\n    DECO\n    def NAME(self, n):\n        x = RANGE * n\n        BODY\n"
            "        return <r>\n", (("fit(OBJ.NAME(2), <a>)", "A"),)),
    Feature("    @contextlib.contextmanager\n    def NAME(self, x):\n        before = self.a\n        self.a = x\n"
            "        BODY\n        try:\n            yield x\n        finally:\n            self.a = before\n",
            (), ("with OBJ.NAME(<a>) as <v>:\n    <B>",), returns="G"),
    Feature("    DECO\n    def NAME(self, x):\n        BODY\n        yield x\n        BODY\n        yield x + 1.0\n",
            (("next(OBJ.NAME(<a>))", "A"), ("list(OBJ.NAME(<a>))[-1]", "A")),
            ("for <v> in OBJ.NAME(<a>):\n    <B>", "OBJ.gen = OBJ.NAME(<a>)\n<v> = next(OBJ.gen)"), returns="G"),
    special("__call__", ", x", (("OBJ(<a>)", "A"),), first="pass"),
    special("__getitem__", ", key", (("fit(OBJ[0], <a>)", "A"),)),
    special("__setitem__", ", key, x", (), ("OBJ[0] = <a>", "OBJ['k'] = <a>"), "G", "self.d[key] = x", "pass"),
    special("__bool__", "", (), ("if OBJ:\n    <B>", "<v> = <a> if not OBJ else <a>", "while OBJ:\n    break"), "S",
            "return bool(<s> > <c>)"),
    special("__len__", "", (("len(OBJ)", "S"),), (), "S", "return int(abs(<s>) % 5)"),
    special("__eq__", ", other", (), ("log(OBJ == 1)", "log(OBJ in [1, 2])", "log([1, OBJ].index(OBJ))"), "S",
            "return bool(<s> > <c>)"),
    special("__lt__", ", other", (), ("log(len(sorted([OBJ, OBJ])))", "log(OBJ < 3)"), "S", "return bool(<s> > <c>)"),
    special("__add__", ", x", (("(OBJ + <a>)", "A"),), first="pass"),
    special("__sub__", ", x", (("(OBJ - <a>)", "A"),), (), "A", "return x - <a>", "pass"),
    Feature(
        "    __array_ufunc__ = None\n    DECO\n    def __radd__(self, x):\n        BODY\n        return <r>\n",
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
    special("__iter__", "", (("next(iter(OBJ))", "A"),), ("for <v> in OBJ:\n    <B>", "log([t for t in OBJ])"), "G",
            "yield x\n        yield x * 2.0"),
    special("__getattr__", ", name", (("fit(OBJ.zz1, <a>)", "A"),), ("log(getattr(OBJ, 'nothing', 3))",
            "log(hasattr(OBJ, 'zz2'))"), "A", "", "if not name.startswith('zz'):\n            raise AttributeError(name)\n"
            "        x = RANGE + 1.0"),
    Feature(
        "    DECO\n    def __setattr__(self, name, value):\n        log('set', name)\n"
        "        object.__setattr__(self, name, value)\n", returns="G", once=True),
    Feature("    DECO\n    def __setattr__(self, name, value):\n        if name == 'a' and value is not None:\n"
            "            value = value + 0.0\n        self.__dict__[name] = value\n", returns="G", once=True),
    Feature("    DECO\n    def __setattr__(self, name, value):\n        super().__setattr__(name, value)\n"
            "        TABLE['set'] = value\n", returns="G", once=True),
    Feature("    def __getattribute__(self, name):\n        if name == 'a':\n            log('get')\n"
            "        return super().__getattribute__(name)\n", returns="G", once=True),
    Feature("    @property\n    def a(self):\n        return self._a\n    @a.setter\n    DECO\n    def a(self, value):\n"
            "        log('a', value is None)\n        self._a = value\n", returns="G", once=True),
    Feature("    a = Field()\n", returns="G", once=True),
    Feature("    b = Field()\n", returns="G", once=True),
    Feature("    def __delattr__(self, name):\n        log('del', name)\n        super().__delattr__(name)\n",
            (), ("OBJ.z = <a>\ndel OBJ.z",), "G", once=True),
    Feature(
        "    DECO\n    def __enter__(self):\n        x = fit(self.a, RANGE)\n        BODY\n        self.z = x\n        return x\n"
        "    DECO\n    def __exit__(self, kind, error, traceback):\n        x = fit(self.z, RANGE)\n        BODY\n"
        "        log('exit', kind, error is None)\n        return False\n",
        (), ("with OBJ as <v>:\n    <B>", "try:\n    with OBJ as <v>:\n        <B>\n        raise Problem(<a>)\n"
             "except Problem as <q>:\n    log(<q>.args)"), "G", once=True),
    Feature("    def __array__(self, dtype=None, copy=None):\n        log('array')\n        return np.array(fit(self.a, RANGE))\n",
            (("np.add(OBJ, RANGE)[:1] + (<a>)", "A"), ("np.asarray(OBJ)[0]", "S")), returns="G", once=True),
)

# Overrides: methods of a subclass that call what they replace.
OVERRIDE = "    DECO\n    def NAME(self, x):\n        x = super().NAME(x)\n        BODY\n        return <r>\n"
