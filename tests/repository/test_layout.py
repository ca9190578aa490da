"""The house stands: every module imports only from lower floors, or from its own without a circle.

The imports are read from the source (`ast`), those inside functions too, so nothing is run and no
import order can hide an edge. A failure draws the edge:

    d2lmini/ops/core.py:12  lazy import  d2lmini.ndarray
        4  ndarray
        ^
        2  ops.core
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from size_table import measure_file

ROOT = Path(__file__).parents[2]
MAX_LINES = 450

# Floor -> what lives there, by the name right below `d2lmini`; "__init__" is d2lmini/__init__.py.
FLOORS = {
    0: """addons base bfloat16 context environment families forks instrument callsite left_out
        threads scopes signatures util weak""",
    1: "engine device draw files serialize random_state",
    2: "ops",
    3: "autograd",
    4: "ndarray graph symbol",
    5: "initializer metric np npx optimizer kvstore",
    6: "gluon",
    7: "profiler widgets contrib",
    8: "cli d2l __init__ __main__",
    9: "compat cuda distributed onnx",
}
ADDONS = frozenset(FLOORS[9].split())
FLOOR_OF = {name: floor for floor, names in FLOORS.items() for name in names.split()}


class Edge(NamedTuple):
    """`source` imports `target` (dotted, without the package's name) at `line`."""

    source: str
    target: str
    line: int
    kind: str  # "import", "lazy import" (in a function), "type-only import" (TYPE_CHECKING)


def modules_of(package: Path) -> dict[str, Path]:
    """Dotted name below the package -> file; the package itself is "__init__"."""
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        if parts[-1] == "__init__" and len(parts) > 1:
            parts = parts[:-1]
        modules[".".join(parts)] = path
    return modules


def _is_type_checking(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in (getattr(test, "id", None), getattr(test, "attr", None))


def _statements(node: ast.AST, kind: str) -> Iterator[tuple[ast.AST, str]]:
    """Every node below `node` with how it is reached: at import, lazily, or for types only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and _is_type_checking(child.test):
            branches = [(child.body, "type-only import"), (child.orelse, kind)]
            for body, reached in branches:
                for statement in body:
                    yield statement, reached
                    yield from _statements(statement, reached)
            continue
        yield child, kind
        deferred = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        yield from _statements(child, "lazy import" if deferred else kind)


def _names_imported(node: ast.AST, package: str, module: str, is_package: bool) -> list[str]:
    """Absolute dotted names that one import statement, or import_module("..."), may load."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            here = [package, *([] if module == "__init__" else module.split("."))]
            here = here[: len(here) - node.level + (is_package or module == "__init__")]
            base = ".".join([*here, base] if base else here)
        return [f"{base}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called in ("import_module", "__import__"):
            return [str(node.args[0].value)]
    return []


@cache
def edges_of(package: Path) -> list[Edge]:
    """Every import of one module of the package by another."""
    modules = modules_of(package)
    edges = []
    for module, path in modules.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node, kind in _statements(tree, "import"):
            names = _names_imported(node, package.name, module, path.name == "__init__.py")
            for name in names:
                parts = name.split(".")
                if parts[0] != package.name:
                    continue
                # The longest prefix that is a module: the rest is a name inside it.
                below = parts[1:]
                while below and ".".join(below) not in modules:
                    below = below[:-1]
                target = ".".join(below) or "__init__"
                if target != module:
                    edges.append(Edge(module, target, getattr(node, "lineno", 0), kind))
    return sorted(set(edges))


def circles_of(edges: list[Edge]) -> list[list[str]]:
    """One path per circle found by a depth-first walk; type-only imports are not executed."""
    graph: dict[str, list[str]] = {}
    for edge in edges:
        if edge.kind != "type-only import":
            graph.setdefault(edge.source, []).append(edge.target)
    circles, done = [], set()

    def walk(module: str, path: list[str]) -> None:
        if module in path:
            circles.append([*path[path.index(module) :], module])
            return
        if module in done:
            return
        for target in graph.get(module, ()):
            walk(target, [*path, module])
        done.add(module)

    for module in graph:
        walk(module, [])
    return circles


def violations(package: Path, floor_of: dict[str, int]) -> list[str]:
    """What is wrong with the house, each as a drawing; empty when it stands."""
    problems = []
    modules = modules_of(package)
    unknown = [m for m in modules if m.split(".")[0] not in floor_of]
    for module in unknown:
        problems.append(f"{package.name}.{module} has no floor: name one in FLOORS")
    edges = [e for e in edges_of(package) if e.source not in unknown and e.target not in unknown]
    own_floor = []
    for edge in edges:
        low, high = (floor_of[name.split(".")[0]] for name in (edge.source, edge.target))
        if high == low:
            own_floor.append(edge)
        elif high > low:
            where = modules[edge.source].relative_to(package.parent).as_posix()
            problems.append(
                f"{where}:{edge.line}  {edge.kind}  {package.name}.{edge.target}\n"
                f"    {high}  {edge.target}\n    ^\n    {low}  {edge.source}"
            )
    for circle in circles_of(own_floor):
        problems.append("circle: " + " -> ".join(circle))
    for path in modules.values():
        lines = measure_file(path).lines
        if lines > MAX_LINES:
            where = path.relative_to(package.parent).as_posix()
            problems.append(f"{where}: {lines} lines of code, more than {MAX_LINES}: split it")
    return problems


def test_modules_import_only_from_lower_floors():
    problems = violations(ROOT / "d2lmini", FLOOR_OF)
    assert not problems, "\n\n" + "\n\n".join(problems)


def test_an_add_on_imports_no_other_add_on():
    edges = [
        f"{edge.source}:{edge.line} -> {edge.target}"
        for edge in edges_of(ROOT / "d2lmini")
        if {edge.source.split(".")[0], edge.target.split(".")[0]} <= ADDONS
        and edge.source.split(".")[0] != edge.target.split(".")[0]
    ]
    assert edges == []


# --- the checker itself, on made-up houses ---

TWO_FLOORS = {"low": 0, "high": 1, "__init__": 1}
SOUND = {
    "__init__.py": "from .high import f\n",
    "low/__init__.py": "from .a import x\n",
    "low/a.py": "x = 1\n",
    "low/b.py": "from . import a\nimport numpy\nfrom .a import x as y\n",
    "high.py": "from house.low import x\n\ndef f():\n    from house.low.b import y\n    return y\n",
}


def build(tmp_path: Path, files: dict[str, str]) -> Path:
    package = tmp_path / "house"
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return package


def test_a_sound_house_passes(tmp_path):
    house = build(tmp_path, SOUND)
    assert violations(house, TWO_FLOORS) == []
    assert len(edges_of(house)) == 6


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("low/a.py", "from ..high import f\n", ["house/low/a.py:1  import  house.high"]),
        ("low/a.py", "import house.high\n", ["house/low/a.py:1  import  house.high", "1  high"]),
        ("low/a.py", "def g():\n    import house.high\n", ["low/a.py:2  lazy import  house.high"]),
        ("low/a.py", "g = lambda: __import__('house.high')\n", ["1  lazy import  house.high"]),
        (
            "low/a.py",
            "if typing.TYPE_CHECKING:\n    from house.high import f\n",
            ["a.py:2  type-only import  house.high"],
        ),
        ("low/a.py", "from .b import y\n", ["circle: low.a -> low.b -> low.a"]),
        ("low/a.py", "def g():\n    from . import b\n", ["circle: low.a -> low.b -> low.a"]),
        ("attic.py", "x = 1\n", ["house.attic has no floor"]),
        ("low/a.py", "x = 1\n" * 451, ["house/low/a.py: 451 lines of code"]),
    ],
)
def test_each_fault_is_found_and_drawn(tmp_path, name, text, words):
    house = build(tmp_path, {**SOUND, name: text})
    drawn = "\n".join(violations(house, TWO_FLOORS))
    for word in words:
        assert word in drawn
