"""Modules: helpers that are the same in all, drawn functions and classes, and `main`, which is called.

Functions and classes are drawn from the last to the first; each calls only those drawn before.
"""

from __future__ import annotations

import re
import textwrap
from random import Random

from tests.call_fuzz import events, statements
from tests.call_fuzz.callables import FEATURES, HANDLER, HEAD, HELPERS, OVERRIDE, WRAPPERS, Feature
from tests.call_fuzz.draft import Callable_, Draft, Scope

SIZES = (8, 8, 8, 20, 300, 3000)
KINDS = ("float64",) * 6 + ("float32", "int64")
# Groups of statements that a program has or has not, and the share of programs that have them.
GROUPS = (
    (statements.ESCAPES, 0.9), (statements.ERRORS, 0.5), (statements.CALLBACKS, 0.6),
    (statements.CONTEXTS, 0.4), (statements.GENERATORS, 0.4), (events.SIGNALS, 0.15),
    (events.FINALIZERS, 0.2), (events.RAISED, 0.15), (events.WARNED, 0.15), (events.THREADS, 0.15),
)
DECORATED = 0.45  # of all functions
CALLS = (
    ("NAME(<a>, <o>)", 6), ("NAME(x=<a>, s=<o>)", 1), ("NAME(*(<a>, <o>))", 1),
    ("NAME(<a>, **{'s': <o>})", 1), ("[NAME(t, <o>) for t in [<a>]][0]", 1),
    ("functools.partial(NAME, s=<o>)(<a>)", 1), ("globals()['NAME'](<a>, <o>)", 1),
    ("CALLS['NAME'](<a>, <o>)", 1), ("(lambda t: NAME(t, <o>))(<a>)", 1),
)


def generate(seed: int, without: tuple[str, ...] = ()) -> str:
    """Return the source of a module; `without` statements that have one of these texts in them."""
    draft = Draft(Random(seed), without)
    rng = draft.rng
    draft.add(statements.PLAIN)
    taken: set[tuple[int, str]] = set()
    for group, share in GROUPS:
        if draft.chance(share) and not (group is events.THREADS and events.SIGNALS[0] in taken):
            taken.update(group)  # handlers of signals run in the main thread, whenever that goes on
            some = rng.sample(group, max(1, int(len(group) * rng.choice((0.2, 0.5, 1.0)))))
            boost = rng.choice((1, 2, 4))
            draft.add([(weight * boost, text) for weight, text in some])
    draft.objects = ["k0"]
    parts: list[str] = []
    wrapped = rng.sample(WRAPPERS, rng.choice((0, 1, 2, 3)))
    draft.wrappers = [f"wr{n}" for n in range(len(wrapped))]
    helpers = {name: _helper(draft, text) for name, text in HELPERS.items()}
    classes = 0
    for n in range(rng.randint(3, 7)):
        if draft.chance(0.35):
            classes += 1
            parts.append(_class(draft, classes))
        else:
            parts.append(_function(draft, n))
    quiet = not taken.intersection(
        (*events.FINALIZERS, *statements.GENERATORS, *statements.CONTEXTS, *statements.ERRORS))
    entry = _main(draft, _around(draft, quiet))
    wrappers = [text.replace("NAME", name) for name, text in zip(draft.wrappers, wrapped, strict=True)]
    body = [*parts, *wrappers, entry]
    used = _used("\n".join(body), helpers)
    size, kind = rng.choice(SIZES), rng.choice(KINDS)
    head = HEAD.replace("SIZE", str(size)).replace("KIND", kind)
    objects = [f"k{n} = K{n}()" for n in range(1, classes + 1)]
    names = re.findall(r"CALLS\['(\w+)'\]", "\n".join(body))
    entries = ", ".join(f"'{name}': {name}" for name in sorted(set(names)))
    table = ["CALLS = {" + entries + "}"] if names else []
    texts = [head, *used, *wrappers, *parts, *objects, *table, entry]
    return "\n".join(text.rstrip("\n") + "\n" for text in texts)


def _used(text: str, helpers: dict[str, str]) -> list[str]:
    """Return the helpers that a text names, in order, and those that these name."""
    needed: set[str] = set()
    new = [text]
    while new:
        words = set(re.findall(r"\w+", new.pop()))
        for name in helpers:
            if name in words and name not in needed:
                needed.add(name)
                new.append(helpers[name])
    return [text for name, text in helpers.items() if name in needed]


def _decorators(draft: Draft, indent: str) -> str:
    """Return lines of decorators; often none."""
    rng = draft.rng
    found = ["@jit"] if draft.chance(DECORATED) else []
    while draft.wrappers and draft.chance(0.3):
        found.insert(rng.randint(0, len(found)), "@" + rng.choice(draft.wrappers))
    return "".join(f"{indent}{each}\n" for each in found)


def _bodies(draft: Draft, text: str, scope: Scope) -> str:
    """Fill the bodies, results and decorators of a text of definitions."""
    lines = []
    for line in text.split("\n"):
        word = line.strip()
        indent = line[: len(line) - len(line.lstrip())]
        if word == "DECO":
            lines += _decorators(draft, indent).split("\n")[:-1]
        elif word == "BODY":
            inner = Scope([*scope.arrays], [*scope.scalars], scope.state, scope.returns)
            made = draft.block(inner, draft.rng.randint(1, 4))
            lines += textwrap.indent("global LAST\n" * ("LAST = " in made) + made, indent).split("\n")
            last = inner
        elif "<" in line:
            lines.append(draft.fill(line, last if "BODY" in text else scope))
        else:
            lines.append(line)
    return "\n".join(lines)


def _helper(draft: Draft, text: str) -> str:
    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        if line.strip() == "DECO":
            lines += [indent + "@jit"] * draft.chance(0.3)
        elif line.strip() == "HANDLER":
            lines += [indent + each for each in draft.rng.sample(HANDLER, draft.rng.randint(1, 3))]
        else:
            lines.append(line)
    return "\n".join(lines)


def _function(draft: Draft, n: int) -> str:
    rng, name = draft.rng, f"f{n}"
    draft.cost = 1
    returns = rng.choice("AAAS")
    if draft.chance(0.1):
        text = (f"DECO\ndef {name}(x, s, depth=2):\n    BODY\n    if depth > 0:\n"
                f"        return {name}(x * 0.5, s, depth - 1)\n    return <r>\n")
    elif draft.chance(0.1):
        text = (f"def made{n}(scale):\n    total = None\n    DECO\n    def inner(x, s):\n"
                f"        nonlocal total, scale\n        BODY\n"
                f"        total = x if total is None else total\n"
                f"        scale = scale * 0.5\n        return <r>\n    return inner\n{name} = made{n}(2.0)\n")
    else:
        text = f"DECO\ndef {name}(x, s):\n    BODY\n    return <r>\n"
    text = _bodies(draft, text, Scope(["x"], [], "s", returns))
    cost = draft.cost * (3 if "depth" in text else 1)
    forms = [form for form, _ in CALLS]
    for form in rng.choices(forms, [w for _, w in CALLS], k=3):
        draft.pool.append(Callable_(form.replace("NAME", name), returns, cost))
    return text


def _class(draft: Draft, n: int) -> str:
    rng, cls, obj = draft.rng, f"K{n}", f"k{n}"
    features: list[Feature] = []
    for feature in rng.sample(FEATURES, min(len(FEATURES), rng.randint(1, 5))):
        head = feature.text.split("(")[0]
        if not (feature.once and any(head == other.text.split("(")[0] for other in features)):
            features.append(feature)
    texts, calls, doing = [], [], []
    inherited: list[str] = []
    for m, feature in enumerate(features):
        draft.cost = 1
        name = f"m{n}{m}"
        text = feature.text.replace("NAME", name).replace("CLS", cls)
        if f"half_{name}" not in text and "scale=2.0" in text:
            text += f"    half_{name} = functools.partialmethod({name}, 0.5)\n"
        text = _bodies(draft, text, Scope(["x"], [], feature.state, feature.returns))
        texts.append(text)
        if feature.text.startswith("    DECO\n    def NAME(self, x):\n        BODY\n        return"):
            inherited.append(name)

        def named(template: str, name: str = name) -> str:
            text = template.replace("OBJ_", f"o{n}").replace("OBJ", obj)
            return text.replace("NAME", name).replace("CLS", cls)

        calls += [Callable_(named(text), returns, draft.cost) for text, returns in feature.calls]
        doing += [(3, named(each)) for each in feature.statements]
    draft.cost = 1
    base = rng.choice(("Box", "Box", "Box", "Slotted")) if not inherited or draft.chance(0.7) else f"Base{n}"
    if base == f"Base{n}":
        above = f"class {base}(Box):\n" + "\n".join(texts)
        over = "\n".join(_bodies(draft, OVERRIDE.replace("NAME", name), Scope(["x"], [], "self", "A"))
                         for name in inherited)
        text = f"{above}\nclass {cls}({base}):\n{over}"
    else:
        text = f"class {cls}({base}):\n" + "\n".join(texts)
    draft.pool += calls
    draft.add(doing)
    draft.objects.append(obj)
    return text


def _around(draft: Draft, quiet: bool) -> tuple[str, str]:
    """Return what `main` does first and last so that unseen code runs whenever a timer or allocations say so.

    Cycles are collected at any time only in programs that are `quiet`: nothing is seen of that.
    """
    before, after = [], []
    if draft.chance(0.06):
        before.append("signal.signal(signal.SIGALRM, on_timer)\n"
                      "__going.append(1)\nsignal.setitimer(signal.ITIMER_REAL, 0.0005)")
        after.append("__going.clear()\nsignal.setitimer(signal.ITIMER_REAL, 0)")
    if quiet and draft.chance(0.15):
        draft.add([(4, "Lurker(<a>)"), (2, "<k>.z = Lurker(<a>)\n<k>.z = None")])
        before.append("gc.set_threshold(7)\ngc.enable()")
        after.append("gc.disable()\ngc.set_threshold(700)")
    return "\n".join(before), "\n".join(after)


def _main(draft: Draft, around: tuple[str, str]) -> str:
    draft.cost = 1
    scope = Scope(["x"], [], "k0", "A", depth=0)
    body = draft.block(scope, draft.rng.randint(3, 7))
    for _ in range(3):
        called = draft.called(scope, draft.rng.choice("AAS"))
        if called:
            body += f"\nlog({called})"
    deco = "@jit\n" if draft.chance(0.3) else ""
    objects = ", ".join(draft.objects)
    call = "return run(RANGE * 0.5 - 2 + n)"
    if around[0]:
        call = (f"{around[0]}\ntry:\n    {call}\nfinally:\n{textwrap.indent(around[1], '    ')}")
    return (f"{deco}def run(x):\n    global LAST\n{textwrap.indent(body, '    ')}\n"
            f"    return x, {draft.array(scope, 1)}, {draft.scalar(scope, 1)}\n\n\n"
            f"def main(n):\n    LOG.clear()\n"
            f"    for k in ({objects},):\n        del k.l[:-6]\n        del k.h[4:]\n        k.st.clear()\n"
            f"{textwrap.indent(call, '    ')}\n")
