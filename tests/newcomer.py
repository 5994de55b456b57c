"""The five-minute guide followed to the letter, in an environment made from nothing.

``make newcomer`` installs the checkout into a new environment, saves the program of `docs/guide.md` as
five.py and runs it with the commands that the page names. It takes a minute or two and needs what pip needs.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.test_documentation import program

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "guide.md"


def main() -> None:
    """Follow the guide; raise where a step does not do what it says."""
    with tempfile.TemporaryDirectory(prefix="jitla-newcomer-") as folder:
        def run(*command: str) -> str:
            done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)
            print("$", *(Path(word).name if word[0] == "/" else word for word in command))
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        run(sys.executable, "-m", "venv", "env")
        python = f"{folder}/env/bin/python"
        run(python, "-m", "pip", "install", "--quiet", str(ROOT))
        (Path(folder) / "five.py").write_text(program(GUIDE), encoding="utf-8")
        told = run(python, "five.py")
        first, second = told.split("== for more speed")[:2]
        assert "handed to NumPy: 1 place" in first, told
        assert re.search(r"\d x piecewise .*np\.piecewise", first), told
        assert "np.piecewise" in second.split("\n")[1] or "piecewise took" in second, told
        assert "handed to NumPy: nothing" in second, told
        found = re.search(r"NumPy ([\d.]+) ms, jitla ([\d.]+) ms", told)
        assert found is not None, told
        print(found[0])
        script = program(GUIDE).replace("@jitla.jit", "")
        (Path(folder) / "plain.py").write_text(
            re.split(r"^found = ", script, flags=re.MULTILINE)[0].replace("huber.__wrapped__", "huber"),
            encoding="utf-8")
        run(python, "-m", "jitla", "run", "--jit", "huber", "plain.py")
        run(python, "-m", "jitla", "info")


if __name__ == "__main__":
    main()
