"""The names of MXNet that a program uses, found in its text: the program is not run.

>>> import ast
>>> from d2lmini.compat.mxnet_alias.names_used import names_used
>>> tree = ast.parse("from mxnet import nd\\nfrom mxnet import gluon as g\\ng.nn.Dense(nd.zeros)")
>>> [(use.paths, use.place) for use in names_used([("", tree)]) if not use.is_import]
[(('mxnet.gluon.nn.Dense',), 'line 3'), (('mxnet.nd.zeros',), 'line 3')]

`Reader` walks the syntax tree and keeps a table of names for each scope: which variables hold a
module or a function of MXNet. A variable that the program gives another value is MXNet's no longer:
`for image in images` hides `from mxnet import image`.

In `hybrid_forward(self, F, ...)` F stands for two modules, `mxnet.nd` and `mxnet.sym`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

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
    has the name ""."""
    reader = Reader()
    for cell, tree in cells:
        reader.cell = cell
        reader.visit(tree)
    return reader.uses


class Reader(ast.NodeVisitor):
    """Visits statements in order; `scopes` holds the paths of each name, () for other values."""

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
        outside: set[str] = set()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.bind(node.name)
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                own.add(part.id)
            elif isinstance(part, (ast.Global, ast.Nonlocal)):
                outside.update(part.names)
        self.scopes.append(dict.fromkeys(own - outside, ()))
        if getattr(node, "name", "") == "hybrid_forward" and len(node.args.args) > 1:
            self.bind(node.args.args[1].arg, ("mxnet.nd", "mxnet.sym"))
        self.generic_visit(node)
        self.scopes.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_scope
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_scope
