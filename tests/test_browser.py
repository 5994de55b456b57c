"""Pages of explanations in a real browser, light and dark, where there is one."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from jitla.explanations.explanation import explanation
from tests.test_graph import SHOWN

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SIZE = 620, 380


def pixels(png: bytes) -> list[bytes]:
    """Return the rows of a picture of 8 bits to a channel, with their channels one after the other."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert (width, height) == SIZE and depth == 8 and kind in (2, 6)
    step, at, data = 3 + (kind == 6), 8, b""
    while at < len(png):
        (length,) = struct.unpack(">I", png[at:at + 4])
        if png[at + 4:at + 8] == b"IDAT":
            data += png[at + 8:at + 8 + length]
        at += 12 + length
    data = zlib.decompress(data)
    rows, above = [], bytearray(width * step)
    for row in range(height):
        start = row * (width * step + 1)
        line = bytearray(data[start + 1:start + 1 + width * step])
        _unfilter(data[start], line, above, step)
        rows.append(bytes(line))
        above = line
    return rows


def _unfilter(kind: int, line: bytearray, above: bytearray, step: int) -> None:
    for i in range(len(line) if kind else 0):
        left, up = line[i - step] if i >= step else 0, above[i]
        corner = above[i - step] if i >= step else 0
        if kind == 4:
            guess = left + up - corner
            near = min((left, up, corner), key=lambda value: abs(guess - value))
            line[i] = line[i] + near & 255
        else:
            line[i] = line[i] + (left, up, left + up >> 1)[kind - 1] & 255


def drawn(page: Path, shot: Path, scheme: int) -> list[bytes]:
    """Return the rows of a picture of a page, in the browser's light or dark scheme."""
    subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--run-all-compositor-stages-before-draw", "--virtual-time-budget=2000",
         f"--window-size={SIZE[0]},{SIZE[1]}", f"--blink-settings=preferredColorScheme={scheme}",
         f"--user-data-dir={shot.parent / 'profile'}", f"--screenshot={shot}", page.as_uri()],
        check=True, capture_output=True, timeout=100)
    return pixels(shot.read_bytes())


@pytest.mark.skipif(BROWSER is None, reason="there is no browser")
@pytest.mark.parametrize(("mode", "ground", "scheme"), [
    ("light", (255, 255, 255), 1), ("dark", (0x17, 0x17, 0x1B), 0)])
def test_a_page_is_drawn_on_its_ground(tmp_path, mode, ground, scheme):
    page, shot = tmp_path / "plan.html", tmp_path / f"{mode}.png"
    explanation(SHOWN).save(page)
    wanted = {bytes.fromhex("cfe3ff"),  # what the first kernel computes
              bytes.fromhex("888888")}  # lines between values
    for _ in range(3):  # a busy browser hands out pictures it has not finished
        rows = drawn(page, shot, scheme)
        step = len(rows[0]) // SIZE[0]
        colours = {row[at:at + 3] for row in rows for at in range(0, len(row), step)}
        if wanted <= colours:
            break
    assert tuple(rows[2][:3]) == ground
    assert wanted <= colours
