"""Which names of MXNet does a program use that d2lmini lacks? The program is read, not run.

    from d2lmini.compat.mxnet_alias.examine import examine
    found = examine("old.ipynb")
    [name.name for name in found.missing]              # ["mxnet.image.imread"]

`names_used` finds the names in the program's text, `ask` asks the library for each. The type of a
variable is not known from the text, so methods of arrays are not among the names.
"""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from d2lmini.compat.left_out import Missing
from d2lmini.compat.mxnet_alias import VERSION, install_as_mxnet, is_alias, short
from d2lmini.compat.mxnet_alias.runner import parse, read_cells, to_python

#: Packages whose names are looked up: MXNet, and the packages of its books.
TOPS = ("mxnet", "d2lzh", "d2l")


@dataclass
class Name:
    """A missing name, the reason, and the places that use it."""

    name: str
    reason: str
    places: list[str] = field(default_factory=list)


@dataclass
class Examined:
    """What is known of a program: how many names of MXNet it uses, and those that are missing."""

    names: int
    missing: list[Name]


def examine(path: str) -> Examined:
    """Read a .py or .ipynb file; ValueError if it is not readable or not Python 3."""
    try:
        trees = list(_read(path))
    except (SyntaxError, UnicodeError, RecursionError, MemoryError) as problem:
        raise ValueError(f"{path} is not a readable program: {problem}") from None
    install_as_mxnet()
    beside = Path(path).resolve().with_name("d2l")  # a file of this name is the program's own
    own = beside.exists() or beside.with_suffix(".py").exists()
    names = set()
    missing: dict[str, Name] = {}
    for name, place in names_used(trees, TOPS[:-1] if own else TOPS):
        names.add(name)
        if reason := ask(name):
            missing.setdefault(name, Name(short(name), reason)).places.append(place)
    return Examined(len(names), sorted(missing.values(), key=lambda found: found.name))


def _read(path: str) -> Iterator[tuple[str, ast.Module]]:
    """The name and the syntax tree of each cell; a script is one cell, whose name is ""."""
    if path.endswith(".ipynb"):
        for cell in read_cells(path):
            yield cell.name, parse(to_python(cell, cell.name), cell.name)
    else:
        with tokenize.open(path) as file:  # in the encoding that its first lines name
            yield "", parse(file.read(), path)


def names_used(
    trees: Sequence[tuple[str, ast.Module]], tops: Sequence[str] = TOPS
) -> Iterator[tuple[str, str]]:
    """The dotted names that a program uses, each with its place. An import alone uses no name.

    A variable that the program itself gives a value, as in `for image in images`, stands for no
    module. In `hybrid_forward(self, F, ...)` F stands for `nd`.

    >>> tree = parse("from mxnet import nd, gluon as g\\ng.nn.Dense(nd.zeros)")
    >>> list(names_used([("", tree)]))
    [('mxnet.gluon.nn.Dense', 'line 2'), ('mxnet.nd.zeros', 'line 2')]
    """
    known = _known_variables([node for _, tree in trees for node in ast.walk(tree)], tops)
    for cell, tree in trees:
        reader = _Reader(known)
        reader.visit(tree)
        for name, line in reader.uses:
            yield name, f"{cell}, line {line}" if cell else f"line {line}"


def _known_variables(nodes: Sequence[ast.AST], tops: Sequence[str]) -> dict[str, str]:
    """The dotted name that each variable stands for."""
    imported: dict[str, str] = {}
    own: set[str] = set()  # what the program itself gives a value
    modules: dict[str, str] = {}  # the F of `hybrid_forward`
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                imported[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            module = "" if node.level else node.module or ""
            for alias in node.names:
                imported[alias.asname or alias.name] = f"{module}.{alias.name}"
                if alias.name == "*" and module.partition(".")[0] in tops:
                    imported |= {name: f"{module}.{name}" for name in dir(import_module(module))}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.FunctionDef) and node.name == "hybrid_forward":
            modules |= {argument.arg: "mxnet.nd" for argument in node.args.args[1:2]}
    known = {name: path for name, path in imported.items() if path.partition(".")[0] in tops}
    return {name: path for name, path in known.items() if name not in own} | modules


class _Reader(ast.NodeVisitor):
    """Collects (dotted name, line) of the variables in `known` and of what is taken from them."""

    def __init__(self, known: dict[str, str]):
        self.known = known
        self.uses: list[tuple[str, int]] = []

    def resolve(self, node: ast.expr) -> str | None:
        """The dotted name of a variable or a chain of attributes."""
        if isinstance(node, ast.Attribute):
            above = self.resolve(node.value)
            return above and f"{above}.{node.attr}"
        return self.known.get(node.id) if isinstance(node, ast.Name) else None

    def _visit_use(self, node: Any) -> None:
        name = self.resolve(node)
        if name is None:
            self.generic_visit(node)
        else:
            self.uses.append((name, node.lineno))

    visit_Name = visit_Attribute = _visit_use


def ask(path: str) -> str | None:
    """Why the name with the dotted path ("mxnet.nd.foo") is missing; None if it is here.

    Call it under `install_as_mxnet`. A package of another library (an installed `d2l`) is not
    imported, and its names count as here; so do the attributes of objects that are no modules.

    >>> from d2lmini.compat.mxnet_alias import uninstall
    >>> install_as_mxnet()
    >>> ask("mxnet.nd.dot") is None
    True
    >>> print(ask("mxnet.nd.histogram"), ask("mxnet.nd.histogramm"), sep="; ")
    left out, np.histogram(x.asnumpy()) does the same; MXNet 1.9.1 has no such name either
    >>> uninstall()
    """
    top, *parts = path.split(".")
    if not is_alias(top):
        return None
    place: Any = import_module(top)
    for part in parts:
        if part.startswith("__") or not isinstance(place, ModuleType):
            return None
        try:
            place = getattr(place, part)
        except AttributeError:
            unknown = f"MXNet {VERSION} has no such name either"
            return unknown if top == "mxnet" else "d2lmini has no such name"
        except ImportError:  # it is here, and needs a package that is not installed
            return None
        if isinstance(place, Missing):
            return f"left out, {place.reason}"
    return None
