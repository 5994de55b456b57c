"""Explanations of fifteen programs, at every level: the same text every time, and without addresses.

Plans are those for the machine of round numbers. What a clock measured stands as "T", as do durations of
stages; what was compiled depends on the compiler and the processor: of LLVM and assembly the kinds of
instructions are compared, for the level x86-64-v3. UPDATE_GOLDEN=1 writes the files anew.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jitla.codegen import lacking, level_target
from jitla.explanations.rendering import CODE_LEVELS, LEVELS
from tests.golden import told
from tests.golden.programs import programs

GOLDEN = Path(__file__).parent / "programs"
TIME = r"\d[\d.e+-]* (?:ns|us|ms|s)\b"
#: Where times that were measured stand, and what depends on them.
MEASURED = re.compile(
    rf"(?<=took ){TIME}|(?<=compiled in ){TIME}|(?<=made in ){TIME}|(?<=measured: ){TIME}|(?<=found, ){TIME}|"
    rf"(?<! about) +{TIME}(?=  programs.py)|"
    r"\d[\d.e+-]* GB/s", re.MULTILINE)
#: Advice that depends on what took how much.
TIMED = re.compile(
    r"^(?:== for more speed|.* takes most of the time and .*|.* took .* and ends its block.*|"
    r".* ran \d+ times, and .*)\n",
    re.MULTILINE)
PROGRAMS = programs()


def fixed(text: str) -> str:
    """Put "T" in the place of what was measured."""
    text = MEASURED.sub("T", TIMED.sub("", text))
    # code that an earlier test has compiled is found
    return re.sub(r"\d+ compiled, \d+ found", "N compiled or found", text)


def table(text: str) -> str:
    """Leave of what runs took the names of steps and lines, and what was predicted."""
    rows = [re.sub(rf"^(   \S+(?: \S+)?)( +{TIME})?.*", lambda m: m[1] + (m[2] or "").strip().join("  "), row)
            if row.startswith("   ") else row for row in text.split("\n")]
    spent = "== the", "   in prog", "   compil", "   NumPy", "   Python"
    return "\n".join(re.sub(TIME, "T", row) if row.startswith(spent) else row.rstrip() for row in rows)


def outline(text: str, level: str) -> str:
    """Leave of code its kernels, functions, and the kinds of instructions in them."""
    rows: list[str] = []
    for part in re.split(r"^(?=-- )", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        if level == "llvm":
            names = re.findall(r"define [^@]*@([\w.]+)", body)
            kinds = re.findall(r"^   +(?:%[\w.]+ = )?(?:tail )?([a-z]+)\b(?! *:)", body, re.MULTILINE)
        else:
            names = re.findall(r"^   ([\w.]+):", body, re.MULTILINE)
            kinds = ["vectors"] if re.search(r"\bv\w+pd|\bv\w+ps|\bvp\w+", body) else ["scalars"]
        rows += [title, "   " + " ".join(sorted({n for n in names if not n.startswith(".")})),
                 "   " + " ".join(sorted(set(kinds)))]
    return "\n".join(rows) + "\n"


@pytest.fixture(scope="module")
def explanations():
    return told.explanations()


@pytest.fixture(scope="module")
def texts():
    command = [sys.executable, "-m", "tests.golden.told"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.process
@pytest.mark.skipif(bool(lacking(level_target(told.LEVEL))), reason=f"no {told.LEVEL} here")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_text_is_as_agreed(name, texts):
    found = []
    for level in LEVELS[:-1]:  # "all" is the others
        text = texts[name][level]
        assert not re.search(r"0x[0-9a-f]{6,}|object at", text) or level in CODE_LEVELS
        if level in CODE_LEVELS:
            text = outline(text, level)
        elif level == "runtime":
            text = table(text)
        found.append(f"#### {level}\n{fixed(text)}")
    text = "\n".join(found)
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_every_level_says_something_of_every_program(explanations):
    for name, found in explanations.items():
        for level in LEVELS:
            if level not in CODE_LEVELS:
                assert len(str(found.at(level)).split("\n")) > 3, (name, level)


def test_calls_are_accounted_for(explanations):
    for found in explanations.values():
        text = str(found.at("runtime"))
        assert "== the call took" in text and "NumPy outside" in text


def test_texts_do_not_change_from_one_look_to_the_next(explanations):
    for found in explanations.values():
        assert str(found) == str(found) and str(found.at("asm")) == str(found.at("asm"))
