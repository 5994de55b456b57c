"""What a process is given to read is there for two programs, one after the other."""

from __future__ import annotations

import os
from contextlib import contextmanager
from threading import Thread

import pytest

from jitla.cli.commands import ReplayableInput

TEXT = b"".join(b"%d\n" % n for n in range(60_000))  # more than a pipe holds


@contextmanager
def standard_input(descriptor):
    """Let `descriptor` be standard input in a ``with`` block."""
    before = os.dup(0)
    os.dup2(descriptor, 0)
    os.close(descriptor)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


def everything():
    found = b""
    while chunk := os.read(0, 1 << 16):
        found += chunk
    return found


def written(text):
    """Return the reading end of a pipe that `text` is written to, then closed."""
    reading, writing = os.pipe()

    def write():
        with open(writing, "wb") as pipe:
            pipe.write(text)

    Thread(target=write, daemon=True).start()
    return reading


@pytest.mark.parametrize("first", [0, 10, len(TEXT)])
def test_of_a_pipe_the_second_reads_all_whatever_the_first_took(first):
    with standard_input(written(TEXT)):
        given = ReplayableInput()
        with given.replayed():
            assert not first or TEXT.startswith(os.read(0, first))
            if first == len(TEXT):
                everything()
        with given.replayed():
            assert everything() == TEXT


def test_a_pipe_that_nobody_writes_to_stops_nobody():
    reading, writing = os.pipe()
    with standard_input(reading):
        given = ReplayableInput()
        with given.replayed():
            pass
        os.write(writing, b"late")
        with given.replayed():
            assert os.read(0, 4) == b"late"
    os.close(writing)


def test_a_file_is_wound_back_to_where_it_was(tmp_path):
    file = tmp_path / "given.txt"
    file.write_bytes(b"skip" + TEXT)
    descriptor = os.open(file, os.O_RDONLY)
    os.lseek(descriptor, 4, os.SEEK_SET)
    with standard_input(descriptor):
        given = ReplayableInput()
        for _ in range(2):
            with given.replayed():
                assert everything() == TEXT


def test_what_is_neither_is_left_as_it_is():
    with standard_input(os.open(os.devnull, os.O_RDONLY)):
        given = ReplayableInput()
        for _ in range(2):
            with given.replayed():
                assert os.read(0, 9) == b""
