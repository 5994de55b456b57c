"""Plans as pictures: the values of a plan and what reads them, for Mermaid, Graphviz and SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from jitla.classes import dataclass

__all__ = ["COLOURS", "NodeRecord", "dot", "mermaid", "svg"]

WIDTH, HEIGHT = 150, 40  # pixels of a node
ACROSS, DOWN = 22, 44  # pixels between nodes of a layer, and between layers
MOST = 200  # values that one can follow with the eye
SWEEPS = 8  # how often layers are put in order after their neighbours
#: Fill and border by step: readable on white and on black. Calls of NumPy are grey.
COLOURS = (
    ("#cfe3ff", "#2f6fd0"), ("#d3f2d3", "#2e8b3d"), ("#ffe3c2", "#c9741a"), ("#ecd7fb", "#8444c4"),
    ("#ffd6dc", "#c93a52"), ("#cdf3f0", "#178f86"), ("#f6efb3", "#9c8410"), ("#e3dfd8", "#7d6f5a"),
)
ARROW = ('<defs><marker id="jitla-arrow" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" '
         'markerHeight="6" orient="auto"><polygon points="0,0 6,3 0,6" fill="#888888"/></marker></defs>')
CALL, READ = ("#e6e6e6", "#777777"), ("#ffffff", "#999999")


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A value of a plan: its operator, sizes and type, and the numbers of the values it `reads`.

    `step` is the name of the step that computes it ("K1", "C2"), empty for what the plan is given.
    """

    op: str
    title: str
    step: str = ""
    reads: tuple[int, ...] = ()
    place: str = ""
    result: bool = False


def mermaid(nodes: Sequence[NodeRecord]) -> str:
    """Return a Mermaid flow chart, a subgraph for each step."""
    rows = ["flowchart TB"]
    for step in _steps(nodes):
        rows += [f"  subgraph {step}"] if step else []
        for at, node in enumerate(nodes):
            if node.step == step:
                left, right = ("([", "])") if not step else ("[[", "]]") if node.result else ("[", "]")
                rows.append(f"  {'  ' * bool(step)}n{at}{left}\"{node.op}<br>{node.title}\"{right}")
        rows += ["  end"] if step else []
    rows += [f"  n{read} --> n{at}" for at, node in enumerate(nodes) for read in node.reads]
    return "\n".join(rows) + "\n"


def dot(nodes: Sequence[NodeRecord]) -> str:
    """Return the graph in the language of Graphviz, a cluster for each step."""
    rows = ["digraph plan {", "  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];"]
    for step in _steps(nodes):
        if step:
            rows += [f"  subgraph cluster_{step} {{", f"    label=\"{step}\"; color=\"{_colour(step)[1]}\";"]
        for at, node in enumerate(nodes):
            if node.step == step:
                fill, border = _colour(step)
                bold = ", penwidth=2" if node.result else ""
                rows.append(f"  {'  ' * bool(step)}n{at} [label=\"{node.op}\\n{node.title}\", "
                            f"fillcolor=\"{fill}\", color=\"{border}\"{bold}];")
        rows += ["  }"] if step else []
    rows += [f"  n{read} -> n{at};" for at, node in enumerate(nodes) for read in node.reads]
    return "\n".join([*rows, "}"]) + "\n"


def svg(nodes: Sequence[NodeRecord]) -> str:
    """Return a drawing, top to bottom, coloured by step; lines of the program show where one points.

    Of many values those of a step are one box; where that is too many, too, there is no drawing.
    """
    nodes = nodes if len(nodes) <= MOST else _by_step(nodes)
    if not 0 < len(nodes) <= MOST:
        return ""
    layers, chains = _layered(nodes)
    _arrange(layers, chains)
    widest = max(len(layer) for layer in layers)
    width, height = widest * (WIDTH + ACROSS) + ACROSS, len(layers) * (HEIGHT + DOWN) + ACROSS
    places = {
        key: (width / 2 + (at - (len(layer) - 1) / 2) * (WIDTH + ACROSS), ACROSS + row * (HEIGHT + DOWN))
        for row, layer in enumerate(layers) for at, key in enumerate(layer)}
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
             f'height="{height}" role="img" font-family="system-ui, sans-serif" font-size="11">']
    parts.append(ARROW)
    parts += [_edge([places[key] for key in chain]) for chain in chains]
    parts += [_box(node, *places[at, 0]) for at, node in enumerate(nodes)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _by_step(nodes: Sequence[NodeRecord]) -> list[NodeRecord]:
    """Return a node for each step and for each array that is given, in place of those for single values."""
    named = [node.step or f"given {at}" for at, node in enumerate(nodes)]
    number = {name: at for at, name in enumerate(dict.fromkeys(named))}
    parts: list[list[int]] = [[] for _ in number]
    for at, name in enumerate(named):
        parts[number[name]].append(at)
    found = []
    for name, part in zip(number, parts, strict=True):
        first = nodes[part[0]]
        reads = dict.fromkeys(number[named[read]] for at in part for read in nodes[at].reads)
        reads.pop(number[name], None)
        op, title = (first.op, first.title) if len(part) == 1 else ("", f"{len(part)} values")
        result = any(nodes[at].result for at in part)
        found.append(NodeRecord(op, title, first.step, tuple(reads), result=result))
    return found


# --------------------------------------------------------------------------- order of the drawing

_Key = tuple[int, int]  # a node, or a bend of the line to a node that lies layers below


def _layered(nodes: Sequence[NodeRecord]) -> tuple[list[list[_Key]], list[list[_Key]]]:
    """Return layers from the top, and every line as what it passes through, from above.

    A node stands below all that it reads; what reads nothing stands above its first reader.
    """
    depth = [0] * len(nodes)
    for at in _ordered(nodes):
        depth[at] = 1 + max((depth[read] for read in nodes[at].reads), default=-1)
    readers: list[list[int]] = [[] for _ in nodes]
    for at, node in enumerate(nodes):
        for read in node.reads:
            readers[read].append(at)
    for at, node in enumerate(nodes):
        if not node.reads:
            depth[at] = min((depth[n] - 1 for n in readers[at]), default=0)
    layers: list[list[_Key]] = [[] for _ in range(max(depth) + 1)]
    for at in range(len(nodes)):
        layers[depth[at]].append((at, 0))
    chains, bends = [], 0
    for at, node in enumerate(nodes):
        for read in dict.fromkeys(node.reads):
            chain = [(read, 0)]
            for layer in range(depth[read] + 1, depth[at]):
                bends += 1
                layers[layer].append((at, bends))
                chain.append((at, bends))
            chains.append([*chain, (at, 0)])
    return layers, chains


def _ordered(nodes: Sequence[NodeRecord]) -> Iterator[int]:
    """Yield the numbers of all nodes, those that a node reads before it."""
    done: set[int] = set()
    for at in range(len(nodes)):
        stack = [at]
        while stack:
            missing = [read for read in nodes[stack[-1]].reads if read not in done]
            stack += missing
            if not missing and (top := stack.pop()) not in done:
                done.add(top)
                yield top


def _arrange(layers: list[list[_Key]], chains: list[list[_Key]]) -> None:
    """Put each layer in the order of the mean place of its neighbours, down and up in turn."""
    above: dict[_Key, list[_Key]] = {}
    below: dict[_Key, list[_Key]] = {}
    for chain in chains:
        for high, low in zip(chain, chain[1:], strict=False):
            above.setdefault(low, []).append(high)
            below.setdefault(high, []).append(low)
    at = {key: place for layer in layers for place, key in enumerate(layer)}
    for sweep in range(SWEEPS):
        near = below if sweep % 2 else above
        for layer in reversed(layers) if sweep % 2 else layers:
            layer.sort(key=lambda key: _mean([at[n] for n in near.get(key, ())], at[key]))
            at.update((key, place) for place, key in enumerate(layer))


def _mean(places: list[int], otherwise: float) -> float:
    return sum(places) / len(places) if places else otherwise


# --------------------------------------------------------------------------- parts of the drawing


def _edge(points: list[tuple[float, float]]) -> str:
    (x, y), *rest = points
    y += HEIGHT
    path = f"M{x:g},{y:g}"
    for number, (to, down) in enumerate(rest, 1):
        path += f" C{x:g},{y + DOWN / 2:g} {to:g},{down - DOWN / 2:g} {to:g},{down:g}"
        x, y = to, down
        if number < len(rest):
            y += HEIGHT
            path += f" L{x:g},{y:g}"
    return f'<path d="{path}" fill="none" stroke="#888888" marker-end="url(#jitla-arrow)"/>'


def _box(node: NodeRecord, x: float, y: float) -> str:
    fill, border = _colour(node.step)
    told = " ".join(filter(None, (node.step, node.op, node.title)))
    told += f"\n{node.place}" if node.place else ""
    middle = y + HEIGHT / 2
    return (f'<g><title>{escape(told)}</title><rect x="{x - WIDTH / 2:g}" y="{y:g}" width="{WIDTH}" '
            f'height="{HEIGHT}" rx="6" fill="{fill}" stroke="{border}" '
            f'stroke-width="{3 if node.result else 1}"/>'
            f'<text x="{x:g}" y="{middle - 4:g}" text-anchor="middle" font-weight="600" fill="#111111">'
            f'{escape(" ".join(filter(None, (node.step, node.op))))}</text>'
            f'<text x="{x:g}" y="{middle + 11:g}" text-anchor="middle" fill="#333333">{escape(node.title)}'
            "</text></g>")


def _colour(step: str) -> tuple[str, str]:
    if not step:
        return READ
    return CALL if step[0] == "C" else COLOURS[(int(step[1:]) - 1) % len(COLOURS)]


def _steps(nodes: Sequence[NodeRecord]) -> Iterator[str]:
    yield from dict.fromkeys(node.step for node in nodes)
