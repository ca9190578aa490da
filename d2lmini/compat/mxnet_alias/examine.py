"""Which names of MXNet does a program use that d2lmini lacks, or does differently? The program is
read, not run.

    from d2lmini.compat.mxnet_alias.examine import examine
    found = examine("old.ipynb")
    [name.name for name in found.missing]              # ["mxnet.image.imread"]

`Reader` finds the names in the program's text, `ask` asks the library for each. `differences.txt`
says what d2lmini does differently from MXNet 1.9.1 on purpose; docs/migration.md shows it as a
table. A paragraph of it is a row, with the names that it is about, if any ("nd.arange(dtype)" is a
call of `nd.arange` with the keyword `dtype`):

    a failed operation
      MXNet: raises once, at a wait
      d2lmini: raises at every wait that meets it
      names: nd.arange(dtype) nd.mean
"""

from __future__ import annotations

import ast
import functools
import os
import re
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from d2lmini.base import LeftOut
from d2lmini.base.left_out import reason_of
from d2lmini.compat.left_out import Missing
from d2lmini.compat.mxnet_alias import VERSION, install_as_mxnet, is_alias, short
from d2lmini.compat.mxnet_alias.runner import Cell, is_ipython, parse, plain_python, read_cells
from d2lmini.ndarray import NDArray


class Difference(NamedTuple):
    """A row: what differs, what MXNet does, what d2lmini does; in Markdown."""

    what: str
    mxnet: str
    here: str
    names: str = ""


_PATTERN = re.compile(r"(.*?) MXNet: (.*?) d2lmini: (.*?)(?: names: (.*))?")


def _read(paragraph: str) -> Difference:
    found = _PATTERN.fullmatch(" ".join(paragraph.split()))
    assert found is not None, paragraph
    return Difference(*found.groups(default=""))


_TEXT = Path(__file__).with_name("differences.txt").read_text(encoding="utf-8")
DIFFERENCES = [_read(paragraph) for paragraph in _TEXT.split("\n\n")]


@dataclass
class Name:
    """A name, the places that use it (one for each use), and what is to be said about it."""

    name: str
    reason: str
    places: list[str] = field(default_factory=list)


@dataclass
class Examined:
    """What is known of a program: how many names of MXNet it uses, those that are missing, those
    that differ, and the places that are not Python 3."""

    names: int
    missing: list[Name]
    differs: list[Name]
    not_python: list[str]


def examine(path: str) -> Examined:
    """Read a .py or .ipynb file; ValueError if it is not readable."""
    unread: list[str] = []
    cells = [(cell.name, _tolerant_tree(cell, unread)) for cell in _cells(path)]
    install_as_mxnet()
    missing: dict[str, Name] = {}
    differs: dict[str, Name] = {}
    names = set()
    for use in names_used(cells):
        if _is_own_package(use, path):
            continue
        if use.paths[0].startswith("."):
            found = _missing_methods().get(use.paths[0][1:])
        else:
            found = _first_missing(use)
            if not use.is_import:
                names.add(short(use.paths[0]))
            for row in () if use.is_import else _differences(use):
                words = f"{row.what}: MXNet: {row.mxnet}; d2lmini: {row.here}"
                name = differs.setdefault(row.what, Name(short(use.paths[0]), words))
                name.places.append(use.place)
        if found is not None:
            names.add(found[0])
            missing.setdefault(found[0], Name(*found)).places.append(use.place)
    return Examined(len(names), _in_order(missing.values()), _in_order(differs.values()), unread)


def _in_order(names: Iterable[Name]) -> list[Name]:
    return sorted(names, key=lambda name: name.name)


# -- the text --------------------------------------------------------------------------------------


def _cells(path: str) -> list[Cell]:
    if path.endswith(".ipynb"):
        return read_cells(path)
    try:
        with tokenize.open(path) as file:  # in the encoding that its first lines name
            return [Cell("", file.read())]
    except (SyntaxError, UnicodeError) as problem:
        raise ValueError(f"{path} is not a readable program: {problem}") from None


def _tolerant_tree(cell: Cell, unread: list[str]) -> ast.Module:
    """The syntax tree of all lines that are Python. Lines of IPython are left out, and so are other
    lines, which are added to `unread`."""
    begin = f"{cell.name}, " if cell.name else ""
    is_magic = cell.source.startswith("%%")  # %%time, %%capture; %%bash is no Python at all
    source = "\n" + cell.source.partition("\n")[2] if is_magic else cell.source
    try:
        plain = plain_python(source, _leave_out)
        tree = parse(plain)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        unread.append(f"{begin}all lines")
        return ast.Module([], [])
    pairs = zip(source.split("\n"), plain.split("\n"), strict=True)
    unread += [
        f"{begin}line {number}"
        for number, (before, after) in enumerate(pairs, start=1)
        if before != after and not is_magic and not is_ipython(before)
    ]
    return tree


def _leave_out(line: str) -> str:
    """What replaces a line that is not Python: a call, for the print statement of Python 2; `pass`;
    nothing, where even that is an error."""
    if line in ("", "pass"):
        return ""
    printed = re.fullmatch(r"print\s+(?:>>\s*[\w.]+\s*,)?(.+?),?", line)
    return f"print({printed[1]})" if printed else "pass"


# -- the names in it -------------------------------------------------------------------------------

#: Packages whose names are looked up: MXNet, and the packages of its books.
TOPS = ("mxnet", "d2lzh", "d2l")

Paths = tuple[str, ...]


class Use(NamedTuple):
    """One use of a name: the dotted paths that it stands for, and its place.

    `is_import` marks imports and aliases (`f = mx.nd.dot`), which need the name, but do not use it.
    A path that begins with a dot, ".tostype", is an attribute of an object of unknown type.
    """

    paths: Paths
    place: str
    keywords: frozenset[str] = frozenset()
    is_import: bool = False


def names_used(cells: Sequence[tuple[str, ast.Module]]) -> list[Use]:
    """All uses in a program, a list of (name of the cell, its syntax tree); the cell of a script
    has the name "".

    >>> tree = parse("from mxnet import nd, gluon as g\\ng.nn.Dense(nd.zeros)")
    >>> [(use.paths, use.place) for use in names_used([("", tree)]) if not use.is_import]
    [(('mxnet.gluon.nn.Dense',), 'line 2'), (('mxnet.nd.zeros',), 'line 2')]
    """
    reader = Reader()
    for cell, tree in cells:
        reader.cell = cell
        reader.visit(tree)
    return reader.uses


class Reader(ast.NodeVisitor):
    """Visits statements in order; `scopes` holds the paths of each name, () for other values: a
    variable that the program gives another value is MXNet's no longer. `for image in images` hides
    `from mxnet import image`. In `hybrid_forward(self, F, ...)` F stands for two modules."""

    def __init__(self) -> None:
        self.uses: list[Use] = []
        self.cell = ""
        self.scopes: list[dict[str, Paths]] = [{}]
        self.handlers = 0

    def bind(self, name: str, paths: Paths = ()) -> None:
        """Give a variable of the innermost scope a value. After `except ImportError:` it keeps
        what it had."""
        if paths or not self.handlers:
            self.scopes[-1][name] = paths

    def resolve(self, node: ast.expr) -> Paths:
        """The paths that a name or a chain of attributes stands for."""
        if isinstance(node, ast.Name):
            return next((scope[node.id] for scope in self.scopes[::-1] if node.id in scope), ())
        if isinstance(node, ast.Attribute):
            return tuple(f"{path}.{node.attr}" for path in self.resolve(node.value))
        return ()

    def add(self, node: ast.AST, paths: Paths, keywords: Any = (), is_import: bool = False) -> None:
        """Note a use."""
        if paths:
            line = f"line {getattr(node, 'lineno', 1)}"
            place = f"{self.cell}, {line}" if self.cell else line
            self.uses.append(Use(paths, place, frozenset(keywords), is_import))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            paths = (alias.name,) if top in TOPS else ()
            self.bind(alias.asname or top, paths if alias.asname else paths and (top,))
            self.add(node, paths, is_import=True)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "" if node.level else node.module or ""
        ours = module.partition(".")[0] in TOPS
        for alias in node.names:
            paths = (f"{module}.{alias.name}",) if ours else ()
            if alias.name != "*":
                self.bind(alias.asname or alias.name, paths)
            elif ours:
                paths = (module,)
                for name in dir(import_module(module)):
                    self.bind(name, (f"{module}.{name}",))
            self.add(node, paths, is_import=True)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.add(node, self.resolve(node))
        else:
            self.bind(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        paths = self.resolve(node)
        if not paths:
            self.visit(node.value)
        self.add(node, paths or (f".{node.attr}",))

    def visit_Call(self, node: ast.Call) -> None:
        called = self.resolve(node.func)
        self.add(node.func, called, {k.arg for k in node.keywords if k.arg})
        for part in (*(() if called else (node.func,)), *node.args, *node.keywords):
            self.visit(part)

    def visit_Assign(self, node: ast.Assign) -> None:
        paths = self.resolve(node.value)
        self.add(node, paths, is_import=True)
        if not paths:
            self.visit(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.bind(target.id, paths)
            else:
                self.visit(target)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.handlers += 1
        self.generic_visit(node)
        self.handlers -= 1

    def _visit_scope(self, node: Any) -> None:
        """A function or a comprehension: its own variables hide those of the program."""
        own = {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
        outer: set[str] = set()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.bind(node.name)
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                own.add(part.id)
            elif isinstance(part, (ast.Global, ast.Nonlocal)):
                outer.update(part.names)
        self.scopes.append(dict.fromkeys(own - outer, ()))
        if getattr(node, "name", "") == "hybrid_forward" and len(node.args.args) > 1:
            self.bind(node.args.args[1].arg, ("mxnet.nd", "mxnet.sym"))
        self.generic_visit(node)
        self.scopes.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_scope
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_scope


def _is_own_package(use: Use, path: str) -> bool:
    """True if `d2l` stands for a file in the program's folder."""
    top = use.paths[0].partition(".")[0]
    here = os.path.join(os.path.dirname(os.path.abspath(path)), top)
    return top == "d2l" and (os.path.exists(here) or os.path.exists(f"{here}.py"))


# -- asking the library ----------------------------------------------------------------------------


def ask(path: str) -> str | None:
    """Why the name with the dotted path ("mxnet.nd.foo") is missing; None if it is here.

    Call it under `install_as_mxnet`. A package of another library (an installed `d2l`) is not
    imported, and its names count as here; so do the attributes of objects that are no modules.

    >>> from d2lmini.compat.mxnet_alias import uninstall
    >>> install_as_mxnet()
    >>> ask("mxnet.nd.dot") is None
    True
    >>> print(ask("mxnet.nd.histogram"), ask("mxnet.nd.histogramm"), sep="; ")
    left out: np.histogram(x.asnumpy()) does the same; MXNet 1.9.1 has no such name either
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
            return reason_in(place.__doc__ or "")
    return None


def reason_in(message: str) -> str | None:
    """The reason in the message of a name that is left out; None in other messages."""
    found = re.search(r"left out of d2lmini, (?:as (?:all of |is |are )?)?(.*)", message)
    return f"left out: {found[1]}" if found else None


_ask = functools.cache(ask)


def _first_missing(use: Use) -> tuple[str, str] | None:
    """The first path that the library lacks, and why. What is left out can be imported."""
    for path in use.paths:
        reason = _ask(path)
        if reason and not (use.is_import and reason.startswith("left out")):
            return short(path), reason
    return None


def _differences(use: Use) -> list[Difference]:
    """The rows about the name, or about a keyword of its call."""
    name = short(use.paths[0]).removeprefix("mxnet.")
    asked = {name, *(f"{name}({keyword})" for keyword in use.keywords)}
    return [row for row in DIFFERENCES if asked & set(row.names.split())]


@functools.cache
def _missing_methods() -> dict[str, tuple[str, str]]:
    """The methods of arrays that are left out, by their own names."""
    names = [name for name, method in vars(NDArray).items() if isinstance(method, LeftOut)]
    return {name: (f"NDArray.{name}", f"left out: {reason_of(name)}") for name in names}
