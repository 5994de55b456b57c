"""Makes the page of the benchmark, and its charts, of the runs in files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import tables
from bench.algorithms import charts
from bench.algorithms.cases import Case
from bench.algorithms.tables import (
    PEERS,
    Summary,
    allowed,
    apart,
    best_peer,
    bounds,
    calls_until_ahead,
    comparable,
    left_alone,
    mean_ratio,
    of_numpy,
    of_peers,
    read,
    summaries,
)

Found = Mapping[Case, Mapping[str, Summary]]
DRAWN = 12  # curves of the scaling chart at most
HEAD = """# Whole algorithms

Algorithms as people write them in NumPy and SciPy (`bench/algorithms`), run unchanged, decorated with
`jitla.jit`, and in other systems. No line of them was changed for jitla. `python -m bench.algorithms.report`
generates this page from measured runs; what was not run is not on it.

- Every run of a system on a case has its own process, with the same number of threads for all systems and no
  machine code of earlier runs; systems alternate.
- *First* is the first call of a process, including loading and compiling; *steady* is the median of the later
  half of its calls, at least three. Calls were made for {seconds}. That is also how long jitla had to compile
  in the background; the variant `jitla:sync` waits for the compiler.
- Each case was run by {processes}. {note}
- Runs that reached their time limit are absent.
- JAX, torch and SystemDS have the data in their own memory before the clock starts, and SystemDS has its own
  clock. scikit-learn's estimators take other steps: they are for orientation.
- A peer counts if its objective equals NumPy's within 1e-8, or within ten times the effect of changing the
  last bits of the data and their order in memory (`numpy-nudged`).

```sh
{command}
```
"""


def name_of(case: Case) -> str:
    """Return a case in words."""
    rows = f"{case.rows:,} rows" if case.rows else case.data
    kind = "" if case.data == "dense" or not case.rows else f", density {case.data}"
    return f"{case.script}, {rows}{kind}" + (", float32" if case.dtype == "float32" else "")


def main_rows(cases: Found) -> Iterator[list[str]]:
    """Yield what is told of each case on which jitla ran."""
    for case, found in cases.items():
        if not ("jitla" in found and "numpy" in found and found["jitla"].ran and found["numpy"].ran):
            continue
        plain, ours, best = found["numpy"], found["jitla"], best_peer(found)
        ahead = calls_until_ahead(ours, plain)
        yield [
            name_of(case), tables.milliseconds(plain.steady), tables.milliseconds(ours.steady),
            f"{plain.steady / ours.steady:.2f}",
            f"{best[0]} {tables.milliseconds(best[1])}" if best else "",
            f"{best[1] / ours.steady:.2f}" if best else "",
            tables.milliseconds(plain.first), tables.milliseconds(ours.first), str(ahead) if ahead else "-",
            f"{(ours.peak - plain.peak) / 1e6:+.0f}",
            f"{apart(ours, plain):.0e}" + ("" if apart(ours, plain) <= allowed(found) else " (!)"),
            *(f"{ours.counter(c):g}" for c in ("kernels", "fallbacks", "recompilations")),
            f"{ours.counter('materialised') / ours.counter('calls'):.0f}",
        ]


MAIN = ("case", "NumPy ms", "jitla ms", "NumPy ÷ jitla", "best peer, ms", "peer ÷ jitla", "first NumPy ms",
        "first jitla ms", "calls until ahead", "memory MB", "objective difference", "kernels", "fallbacks",
        "compilations", "written per call")


def peer_rows(cases: Found, names: Sequence[str]) -> Iterator[list[str]]:
    """Yield steady times of all systems, with first calls; an objective that is another's is marked."""
    for case, found in cases.items():
        shown = [_cell(name, found) for name in names]
        others = [text for name, text in zip(names, shown, strict=True) if name in (*PEERS, "sklearn")]
        if any(others):
            yield [name_of(case), *shown]


def _cell(name: str, found: Mapping[str, Summary]) -> str:
    summary = found.get(name)
    if summary is None or not summary.ran:
        return ""
    mark = "" if name in ("numpy", "sklearn") or comparable(name, found) else " (!)"
    return f"{tables.milliseconds(summary.steady)} ({tables.milliseconds(summary.first)}){mark}"


def change_rows(cases: Found) -> Iterator[list[str]]:
    """Yield how many lines of each script are touched for each system."""
    lines: dict[str, dict[str, int]] = {}
    for case, found in cases.items():
        for name in ("jitla", *PEERS):
            if comparable(name, found):
                lines.setdefault(case.script, {})[name] = found[name].changed
    for script, counts in lines.items():
        yield [script, *(str(counts[name]) if name in counts else "" for name in ("jitla", *PEERS))]


def ablation_rows(cases: Found, variants: Sequence[str]) -> Iterator[list[str]]:
    """Yield steady times of the variants over that of all of jitla, compiled before it runs."""
    for case, found in cases.items():
        base = found.get("jitla:sync")
        if base is not None and base.ran:
            yield [name_of(case), tables.milliseconds(base.steady), *(
                f"{found[v].steady / base.steady:.2f}" if v in found and found[v].ran else ""
                for v in variants)]


def absent_rows(cases: Found) -> Iterator[list[str]]:
    """Yield what could not be run, and what was said."""
    for case, found in cases.items():
        for name, summary in found.items():
            text = summary.why_not.replace("|", "/").replace("\n", " ")
            if text and "failed" in summary.records[0]:
                yield [name_of(case), name, text[:120]]


def used(cases: Found, prefix: str = "") -> list[str]:
    """Return systems that ran on any case, in the order of their first runs."""
    names = dict.fromkeys(n for found in cases.values() for n, s in found.items() if s.ran)
    return [n for n in names if n.startswith(prefix)]


def summary_lines(cases: Found) -> Iterator[str]:
    """Yield means and what is kept of the promises."""
    plain, peers = of_numpy(cases), of_peers(cases)
    for low, high in ((0, 1), (1, 1_000), (1_001, 10_000), (10_001, 10**9)):
        some = [ratio for case, ratio in plain.items() if low <= case.rows <= high]
        named = f"at most {high:,} rows" if high < 10**9 else f"more than {low - 1:,} rows"
        if some:
            yield (f"- {len(some)} cases of {named if high > 1 else 'real data'}: geometric mean of "
                   f"NumPy ÷ jitla {mean_ratio(some):.2f}.")
    if peers:
        yield (f"- {len(peers)} cases that a peer ran, too: geometric mean of the best peer ÷ jitla "
               f"{mean_ratio(list(peers.values())):.2f}.")
    yield ""
    yield tables.markdown(("goal", "met", "of rows"),
                          [[name, str(kept), str(count)] for name, kept, count in bounds(cases)])
    slow, plain_ones = left_alone(cases)
    if slow:
        yield ""
        yield (f"Of the {slow} rows on little data that were slower by more than 5 %, {plain_ones} ran at "
               "least nine calls in ten in the plain function: two equal processes differ by that much.")


def bar_chart(cases: Found) -> str:
    """Draw how many times as fast as NumPy systems are, on the most rows that each script ran on."""
    names = ["jitla", *(n for n in used(cases) if n in PEERS)]
    largest: dict[str, Case] = {}
    for case in cases:
        if case.dtype == "float64" and case.rows and case.rows >= largest.get(case.script, case).rows:
            largest[case.script] = case
    groups = {}
    for script, case in largest.items():
        found = cases[case]
        group = {n: found["numpy"].steady / found[n].steady for n in names if comparable(n, found)}
        if group:
            groups[f"{script}, {case.rows:g}"] = group
    return charts.bars(groups, names, "times as fast as NumPy") if groups else ""


def scaling_chart(cases: Found) -> str:
    """Draw how many times as fast as NumPy jitla is, over the rows."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for case, ratio in of_numpy(cases).items():
        if case.rows and case.dtype == "float64":
            curves.setdefault(f"{case.script}{'' if case.data == 'dense' else ' ' + case.data}", []).append(
                (case.rows, ratio))
    many = {name: points for name, points in curves.items() if len(points) > 1}
    chosen = dict(sorted(many.items(), key=lambda item: -len(item[1]))[:DRAWN])
    return charts.lines(chosen, "rows", "times as fast as NumPy") if chosen else ""


def spans(records: Sequence[Mapping[str, Any]]) -> str:
    """Say for how long systems were called: jitla, which compiles meanwhile, and all others."""
    texts = []
    for named, ours in (("jitla", True), ("others", False)):
        found = sorted({r["seconds"] for r in records if "case" in r
                        and (r["system"].partition(":")[0] == "jitla") is ours})
        if found:
            ends = dict.fromkeys((found[0], found[-1]))
            texts.append(" to ".join(f"{s:g}" for s in ends) + f" s ({named})")
    return ", ".join(texts)


def page(
    cases: Found, said: Mapping[str, str], machines: Sequence[str], pictures: Sequence[str],
) -> str:
    """Return the page, with what is `said` of the runs: the command, how long they were, and a note."""
    counts = sorted({len(s.records) for found in cases.values() for s in found.values() if s.ran})
    processes = " to ".join(str(n) for n in dict.fromkeys((counts[0], counts[-1]))) + (
        " process" if counts[-1] == 1 else " processes") + " for each system"
    head = HEAD.format(processes=processes, **said)
    parts = [head, *machines, "", *summary_lines(cases), ""]
    parts += [f"![{p}](benchmarks/{p})" for p in pictures]
    parts += ["", "## jitla and NumPy", "", tables.markdown(MAIN, list(main_rows(cases)))]
    names = [n for n in used(cases) if ":" not in n and n != "numpy-nudged"]
    rows = list(peer_rows(cases, names))
    if rows:
        parts += ["", "## All systems", "",
                  "Steady milliseconds, in brackets the first call; (!): another objective.", "",
                  tables.markdown(("case", *names), rows), "", "## Lines changed", "",
                  tables.markdown(("script", "jitla", *PEERS), list(change_rows(cases)))]
    variants = [v for v in used(cases, "jitla:") if v != "jitla:sync"]
    rows = list(ablation_rows(cases, variants))
    if rows:
        parts += ["", "## Ablations", "", "Time relative to the complete system.", "",
                  tables.markdown(("case", "sync ms", *(v.removeprefix("jitla:") for v in variants)), rows)]
    rows = list(absent_rows(cases))
    if rows:
        parts += ["", "## Failed runs", "", tables.markdown(("case", "system", "said"), rows)]
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.algorithms.report", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, default=[Path("algorithms.jsonl")])
    parser.add_argument("--page", type=Path, default=Path("docs/reports/benchmarks.md"))
    parser.add_argument("--command", default="make bench-algorithms", help="with which all this was run")
    parser.add_argument("--note", default="Other programs ran on the machine from time to time.",
                        help="what else is to be known of the runs")
    options = parser.parse_args()
    records = read(options.files)
    cases = summaries(records)
    pictures = {"speed.svg": bar_chart(cases), "scaling.svg": scaling_chart(cases)}
    folder = options.page.parent / "benchmarks"
    folder.mkdir(exist_ok=True)
    for name, text in pictures.items():
        if text:
            (folder / name).write_text(text, encoding="utf-8")
    machines = list(dict.fromkeys(r["machine"] for r in records if "machine" in r))
    if len(machines) > 1:
        raise SystemExit("these runs are of several machines, or versions:\n" + "\n".join(machines))
    drawn = [name for name, text in pictures.items() if text]
    said = {"command": options.command, "note": options.note, "seconds": spans(records)}
    options.page.write_text(page(cases, said, machines, drawn), encoding="utf-8")


if __name__ == "__main__":
    main()
