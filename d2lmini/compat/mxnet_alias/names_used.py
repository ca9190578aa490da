"""The names of MXNet that a program uses, found in its text: the program is not run.

>>> import ast
>>> from d2lmini.compat.mxnet_alias.names_used import names_used
>>> tree = ast.parse("from mxnet import nd\\nfrom mxnet import gluon as g\\ng.nn.Dense(nd.zeros)")
>>> [(use.paths, use.place) for use in names_used([("", tree)]) if not use.is_import]
[(('mxnet.gluon.nn.Dense',), 'line 3'), (('mxnet.nd.zeros',), 'line 3')]

`Reader` walks the syntax tree in the order in which Python runs it, and keeps a table of names for
each scope: which variables hold a module or a function of MXNet. Bodies of functions come last, as
they may use what the program imports after them. A variable that the program gives another value
is MXNet's no longer: `for image in images` hides `from mxnet import image`.

In `hybrid_forward(self, F, ...)` F stands for two modules, `mxnet.nd` and `mxnet.sym`.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import NamedTuple, TypeAlias

from d2lmini.compat.left_out import Missing

#: Packages whose names are looked up: MXNet, and the packages of its books.
TOPS = ("mxnet", "d2lzh", "d2l")

Paths = tuple[str, ...]
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


#: The parts of a node in the order in which Python runs them, where the syntax has another order.
_ORDER = {
    ast.Assign: ("value", "targets"),
    ast.For: ("iter", "target", "body", "orelse"),
    ast.AsyncFor: ("iter", "target", "body", "orelse"),
    ast.comprehension: ("iter", "target", "ifs"),
    ast.ListComp: ("generators", "elt"),
    ast.SetComp: ("generators", "elt"),
    ast.GeneratorExp: ("generators", "elt"),
    ast.DictComp: ("generators", "key", "value"),
}


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
    reader.visit_bodies()
    return reader.uses


class Reader(ast.NodeVisitor):
    """Visits statements in order; `scopes` holds the paths of each name, () for other values."""

    def __init__(self) -> None:
        self.uses: list[Use] = []
        self.cell = ""
        self.scopes: list[dict[str, Paths]] = [{}]
        self.star_modules: list[str] = []
        self.in_class = False
        self.handlers = 0
        self.bodies: list[tuple[Function, str, list[dict[str, Paths]]]] = []

    # -- names -------------------------------------------------------------------------------------

    def look_up(self, name: str) -> Paths:
        """The paths that a variable stands for, () if none."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if not hasattr(builtins, name):
            for module in self.star_modules:
                place = import_module(module)
                if not isinstance(place, Missing) and hasattr(place, name):
                    return (f"{module}.{name}",)
        return ()

    def bind(self, name: str, paths: Paths = ()) -> None:
        """Give a variable of the innermost scope a value. After `except ImportError:` it keeps
        what it had."""
        if paths or not self.handlers:
            self.scopes[-1][name] = paths

    def resolve(self, node: ast.expr) -> Paths:
        """The paths that an expression stands for: a name, a chain of attributes, a `getattr`."""
        if isinstance(node, ast.Name):
            return self.look_up(node.id)
        if isinstance(node, ast.Attribute):
            return tuple(f"{path}.{node.attr}" for path in self.resolve(node.value))
        match node:
            case ast.Call(ast.Name("getattr"), [place, ast.Constant(str(name))], []):
                return tuple(f"{path}.{name}" for path in self.resolve(place))
        return ()

    def add(
        self, node: ast.AST, paths: Paths, is_import: bool = False,
        keywords: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        """Note a use."""
        if paths:
            line = f"line {getattr(node, 'lineno', 1)}"
            place = f"{self.cell}, {line}" if self.cell else line
            self.uses.append(Use(paths, place, keywords, is_import))

    # -- imports -----------------------------------------------------------------------------------

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
                self.star_modules.append(module)
                paths = (module,)
            self.add(node, paths, is_import=True)

    # -- expressions -------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.add(node, self.look_up(node.id))
        else:
            self.bind(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        paths = self.resolve(node)
        if not paths:
            self.visit(node.value)
        self.add(node, paths or (f".{node.attr}",))

    def visit_Call(self, node: ast.Call) -> None:
        paths = self.resolve(node)  # a getattr with a constant
        if paths:
            self.add(node, paths)
            return
        called = self.resolve(node.func)
        if called:
            keywords = frozenset(keyword.arg for keyword in node.keywords if keyword.arg)
            self.add(node.func, called, keywords=keywords)
        else:
            self.visit(node.func)
        for argument in (*node.args, *node.keywords):
            self.visit(argument)

    def generic_visit(self, node: ast.AST) -> None:
        for name in _ORDER.get(type(node), node._fields):
            value = getattr(node, name, None)
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.AST):
                    self.visit(part)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_defaults(node.args)
        self._put_off(node)

    def _visit_comprehension(self, node: ast.AST) -> None:
        self.scopes.append({})
        self.generic_visit(node)
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    # -- statements --------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> None:
        paths = self.resolve(node.value)
        if paths and all(isinstance(target, ast.Name) for target in node.targets):
            self.add(node, paths, is_import=True)
            for target in node.targets:
                assert isinstance(target, ast.Name)
                self.bind(target.id, paths)
        else:
            self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.handlers += 1
        self.generic_visit(node)
        self.handlers -= 1

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        outer, self.in_class = self.in_class, True
        self.scopes.append({})
        for statement in node.body:
            self.visit(statement)
        self.scopes.pop()
        self.in_class = outer
        self.bind(node.name)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._visit_defaults(node.args)
        self.bind(node.name)
        self._put_off(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def _visit_defaults(self, arguments: ast.arguments) -> None:
        for default in [*arguments.defaults, *filter(None, arguments.kw_defaults)]:
            self.visit(default)

    def _put_off(self, node: Function) -> None:
        # A function does not see the names of the class around it.
        outer = self.scopes[:-1] if self.in_class else self.scopes
        # What a name stands for where the function is defined comes before what it stands for at
        # the end: a later `image = ...` of the program hides nothing here.
        known: dict[str, Paths] = {}
        for scope in outer:
            known |= scope
        known = {name: paths for name, paths in known.items() if paths}
        self.bodies.append((node, self.cell, [*outer, known]))

    def visit_bodies(self) -> None:
        """Visit the bodies of functions, and of those inside them."""
        self.in_class = False
        while self.bodies:
            node, self.cell, outer = self.bodies.pop(0)
            body = node.body if isinstance(node.body, list) else [node.body]
            self.scopes = [*outer, dict.fromkeys(_local_names(node, body), ())]
            if getattr(node, "name", "") == "hybrid_forward" and len(node.args.args) > 1:
                self.bind(node.args.args[1].arg, ("mxnet.nd", "mxnet.sym"))
            for part in body:
                self.visit(part)


def _local_names(node: Function, body: Sequence[ast.AST]) -> Iterator[str]:
    """The parameters of a function, and the variables that it sets."""
    yield from (part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg))
    outside: set[str] = set()
    found: set[str] = set()
    for inner in _own_nodes(body):
        if isinstance(inner, (ast.Global, ast.Nonlocal)):
            outside.update(inner.names)
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            found.add(inner.id)
    yield from found - outside


def _own_nodes(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a function's body, without those of functions, classes and comprehensions
    inside it."""
    comprehensions = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    for node in nodes:
        yield node
        if not isinstance(node, (*functions, *comprehensions)):
            yield from _own_nodes(list(ast.iter_child_nodes(node)))
