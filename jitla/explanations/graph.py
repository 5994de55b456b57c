"""Drawings of plans as data-flow graphs, for Mermaid, Graphviz and SVG.

The SVG drawing is layered: nodes are assigned to layers by longest paths, and crossings are reduced by
barycentre sweeps (Sugiyama, Tagawa and Toda, 1981).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from jitla.classes import dataclass

__all__ = ["COLOURS", "NodeRecord", "dot", "mermaid", "svg"]

NODE_WIDTH, NODE_HEIGHT = 150, 40  # pixels
NODE_GAP, LAYER_GAP = 22, 44  # pixels between nodes of a layer, and between layers
MAX_NODES = 200
ORDERING_SWEEPS = 8
#: Fill and border colours by kernel, readable on white and on black. Calls of NumPy are grey.
COLOURS = (
    ("#cfe3ff", "#2f6fd0"), ("#d3f2d3", "#2e8b3d"), ("#ffe3c2", "#c9741a"), ("#ecd7fb", "#8444c4"),
    ("#ffd6dc", "#c93a52"), ("#cdf3f0", "#178f86"), ("#f6efb3", "#9c8410"), ("#e3dfd8", "#7d6f5a"),
)
ARROW_MARKER = ('<defs><marker id="jitla-arrow" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" '
         'markerHeight="6" orient="auto"><polygon points="0,0 6,3 0,6" fill="#888888"/></marker></defs>')
CALL_COLOURS, INPUT_COLOURS = ("#e6e6e6", "#777777"), ("#ffffff", "#999999")


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A value of a plan: its operator, sizes and type, and the indices of its operands (`reads`).

    `step` is the name of the step that computes it ("K1", "C2"), empty for inputs of the plan.
    """

    op: str
    title: str
    step: str = ""
    reads: tuple[int, ...] = ()
    place: str = ""
    result: bool = False


def mermaid(nodes: Sequence[NodeRecord]) -> str:
    """Return a Mermaid flow chart with a subgraph for each step."""
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
    """Return the graph in the DOT language of Graphviz, with a cluster for each step."""
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
    """Return a drawing as SVG, top to bottom, coloured by step; source lines are tooltips.

    If there are too many values, each step is one box; empty if there are still too many.
    """
    nodes = nodes if len(nodes) <= MAX_NODES else _group_by_step(nodes)
    if not 0 < len(nodes) <= MAX_NODES:
        return ""
    layers, chains = _assign_layers(nodes)
    _reduce_crossings(layers, chains)
    widest = max(len(layer) for layer in layers)
    column_width, row_height = NODE_WIDTH + NODE_GAP, NODE_HEIGHT + LAYER_GAP
    width, height = widest * column_width + NODE_GAP, len(layers) * row_height + NODE_GAP
    places = {
        key: (width / 2 + (at - (len(layer) - 1) / 2) * column_width, NODE_GAP + row * row_height)
        for row, layer in enumerate(layers) for at, key in enumerate(layer)}
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
             f'height="{height}" role="img" font-family="system-ui, sans-serif" font-size="11">']
    parts.append(ARROW_MARKER)
    parts += [_edge([places[key] for key in chain]) for chain in chains]
    parts += [_box(node, *places[at, 0]) for at, node in enumerate(nodes)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _group_by_step(nodes: Sequence[NodeRecord]) -> list[NodeRecord]:
    """Return one node for each step and for each input, instead of one for each value."""
    group_names = [node.step or f"given {at}" for at, node in enumerate(nodes)]
    number = {name: at for at, name in enumerate(dict.fromkeys(group_names))}
    group_members: list[list[int]] = [[] for _ in number]
    for at, name in enumerate(group_names):
        group_members[number[name]].append(at)
    groups = []
    for name, members in zip(number, group_members, strict=True):
        first = nodes[members[0]]
        reads = dict.fromkeys(number[group_names[read]] for at in members for read in nodes[at].reads)
        reads.pop(number[name], None)
        op, title = (first.op, first.title) if len(members) == 1 else ("", f"{len(members)} values")
        result = any(nodes[at].result for at in members)
        groups.append(NodeRecord(op, title, first.step, tuple(reads), result=result))
    return groups


# --------------------------------------------------------------------------- order of the drawing

_Vertex = tuple[int, int]  # a node (index, 0), or a bend of an edge to that node in a layer between


def _assign_layers(nodes: Sequence[NodeRecord]) -> tuple[list[list[_Vertex]], list[list[_Vertex]]]:
    """Return the layers from the top, and for every edge the vertices it passes through, from above.

    A node is below all its operands; inputs are directly above their first reader.
    """
    depth = [0] * len(nodes)
    for at in _topological_order(nodes):
        depth[at] = 1 + max((depth[read] for read in nodes[at].reads), default=-1)
    readers: list[list[int]] = [[] for _ in nodes]
    for at, node in enumerate(nodes):
        for read in node.reads:
            readers[read].append(at)
    for at, node in enumerate(nodes):
        if not node.reads:
            depth[at] = min((depth[n] - 1 for n in readers[at]), default=0)
    layers: list[list[_Vertex]] = [[] for _ in range(max(depth) + 1)]
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


def _topological_order(nodes: Sequence[NodeRecord]) -> Iterator[int]:
    """Yield the indices of all nodes, operands first."""
    visited: set[int] = set()
    for at in range(len(nodes)):
        stack = [at]
        while stack:
            pending = [read for read in nodes[stack[-1]].reads if read not in visited]
            stack += pending
            if not pending and (top := stack.pop()) not in visited:
                visited.add(top)
                yield top


def _reduce_crossings(layers: list[list[_Vertex]], chains: list[list[_Vertex]]) -> None:
    """Sort each layer by the mean position of its neighbours, in alternating downward and upward sweeps."""
    above: dict[_Vertex, list[_Vertex]] = {}
    below: dict[_Vertex, list[_Vertex]] = {}
    for chain in chains:
        for high, low in zip(chain, chain[1:], strict=False):
            above.setdefault(low, []).append(high)
            below.setdefault(high, []).append(low)
    at = {key: place for layer in layers for place, key in enumerate(layer)}
    for sweep in range(ORDERING_SWEEPS):
        neighbours = below if sweep % 2 else above
        for layer in reversed(layers) if sweep % 2 else layers:
            layer.sort(key=lambda key: _mean([at[n] for n in neighbours.get(key, ())], at[key]))
            at.update((key, place) for place, key in enumerate(layer))


def _mean(places: list[int], otherwise: float) -> float:
    """Return the mean, or `otherwise` if there are no values."""
    return sum(places) / len(places) if places else otherwise


# --------------------------------------------------------------------------- parts of the drawing


def _edge(points: list[tuple[float, float]]) -> str:
    (x, y), *targets = points
    y += NODE_HEIGHT
    path = f"M{x:g},{y:g}"
    for number, (next_x, next_y) in enumerate(targets, 1):
        path += f" C{x:g},{y + LAYER_GAP / 2:g} {next_x:g},{next_y - LAYER_GAP / 2:g} {next_x:g},{next_y:g}"
        x, y = next_x, next_y
        if number < len(targets):
            y += NODE_HEIGHT
            path += f" L{x:g},{y:g}"
    return f'<path d="{path}" fill="none" stroke="#888888" marker-end="url(#jitla-arrow)"/>'


def _box(node: NodeRecord, x: float, y: float) -> str:
    fill, border = _colour(node.step)
    tooltip = " ".join(filter(None, (node.step, node.op, node.title)))
    tooltip += f"\n{node.place}" if node.place else ""
    middle = y + NODE_HEIGHT / 2
    return (f'<g><title>{escape(tooltip)}</title>'
            f'<rect x="{x - NODE_WIDTH / 2:g}" y="{y:g}" width="{NODE_WIDTH}" '
            f'height="{NODE_HEIGHT}" rx="6" fill="{fill}" stroke="{border}" '
            f'stroke-width="{3 if node.result else 1}"/>'
            f'<text x="{x:g}" y="{middle - 4:g}" text-anchor="middle" font-weight="600" fill="#111111">'
            f'{escape(" ".join(filter(None, (node.step, node.op))))}</text>'
            f'<text x="{x:g}" y="{middle + 11:g}" text-anchor="middle" fill="#333333">{escape(node.title)}'
            "</text></g>")


def _colour(step: str) -> tuple[str, str]:
    if not step:
        return INPUT_COLOURS
    return CALL_COLOURS if step[0] == "C" else COLOURS[(int(step[1:]) - 1) % len(COLOURS)]


def _steps(nodes: Sequence[NodeRecord]) -> Iterator[str]:
    yield from dict.fromkeys(node.step for node in nodes)
