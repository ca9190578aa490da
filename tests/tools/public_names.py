"""Every public name of d2lmini: what it is, how it is called, its words, and where it stands.

`SPACES` are the modules that a program writes by name; what such a module shows is its `__all__`,
or, where there is none, what it defines itself, and in `nd` every operation. `make book` makes the
reference of it, `tests/docs/test_docs_names.py` asks that each name says what it is.

>>> [entry.name for entry in entries_of("lr_scheduler")][:2]
['LRScheduler', 'FactorScheduler']
>>> print(entries_of("lr_scheduler")[1].usage)
FactorScheduler(step, factor=1, stop_factor_lr=1e-08, base_lr=0.01, warmup_steps=0, ...)
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import d2lmini
from d2lmini.ops.core import Op

#: What `nd.linalg` and its like are.
Namespace = type(d2lmini.nd.linalg)

#: Where the library is that was imported: a checkout, or what pip installed.
HOME = Path(d2lmini.__file__).parents[1]

#: Modules by the names that programs write, in the order of the house, from the ground up: the
#: title of a page of the reference, then what stands on it. "module:A,B": of a module that programs
#: need not name, what they meet, because a call returns it.
SPACES = {
    "Contexts, errors, hooks": "context base instrument",
    "The engine": "engine",
    "Writing operations": "ops.core:op,Op,same,invoke ops.spec:Spec,Cost",
    "Memory": "storage",
    "autograd": "autograd",
    "NDArray": "nd nd.random nd.linalg nd.contrib",
    "NumPy's interface": "np np.linalg np.random npx",
    "Symbol": "sym sym.random viz",
    "Initializers": "init",
    "Optimizers and schedules": "optimizer lr_scheduler",
    "Metrics": "metric",
    "Data as batches": "io",
    "KVStore": "kvstore",
    "Gluon": "gluon gluon.utils gluon.loss",
    "Gluon: layers": "gluon.nn gluon.rnn",
    "Gluon: data": """gluon.data gluon.data.vision
        gluon.data.vision.transforms""",
    "The profiler": """profiler profiler.tracing:Profile profiler.waits:WaitList,Ledger,Row,Lint
        profiler.account:Account,Part profiler.event_graph:CriticalPath
        profiler.memory:ChangeList,MemoryReport,DeviceMemory
        profiler.summary:Summary""",
    "Widgets": "widgets widgets.watch:Watch",
    "d2l": "d2l",
    "Mixed precision": "contrib.amp",
    "The package itself": "d2lmini random util runtime",
}

#: Not ours to describe: a module of matplotlib, one of NumPy's, the names of a book.
NOT_OURS = {"d2l.plt", "metric.np", "d2l.mxnet"}


@dataclass
class Entry:
    """A public name: `space.name`, or a method `space.Class.name`."""

    space: str
    name: str
    value: Any
    also: list[str] = field(default_factory=list)  # its other names in the same space
    members: list[Entry] = field(default_factory=list)  # of a class: methods and properties

    @property
    def path(self) -> str:
        return self.name if self.space == "d2lmini" else f"{self.space}.{self.name}"

    @property
    def kind(self) -> str:
        """operation, class, method, property, module, function or value."""
        value = self.value
        if isinstance(value, Op):
            return "operation"
        if inspect.isclass(value):
            return "class"
        if inspect.ismodule(value) or isinstance(value, Namespace):
            return "module"
        if not callable(value) and not isinstance(value, (staticmethod, classmethod)):
            return "property" if "." in self.name else "value"
        return "method" if "." in self.name else "function"

    @cached_property
    def doc(self) -> str:
        """The docstring, or that of the method it overrides; "" where there is none."""
        found = self.value.__doc__ if isinstance(self.value, Op) else inspect.getdoc(self.value)
        if self.kind in ("property", "method") and not found:
            found = inspect.getdoc(getattr(self.owner, self.name.rpartition(".")[2], None))
        return inspect.cleandoc(found or "")

    owner: Any = None  # the class of a method

    @cached_property
    def function(self) -> Any:
        """What holds the code: of a class, what makes one of it; of a property, its getter."""
        value = self.value
        if isinstance(value, Op):
            return value.compute
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, property):
            value = value.fget
        if isinstance(value, cached_property):
            value = value.func
        # A function that applies an op shows the op's signature; it is a function all the same.
        through_op = lambda f: isinstance(f.__wrapped__, Op)  # noqa: E731
        return inspect.unwrap(value, stop=through_op) if callable(value) else value

    @cached_property
    def returns(self) -> str:
        """What a call gives, or a property is, as the code says; "" where it does not."""
        if self.kind in ("operation", "class", "module", "value"):
            return ""
        given = getattr(self.function, "__annotations__", {}).get("return", "")
        return given if isinstance(given, str) else getattr(given, "__name__", str(given))

    @property
    def parameters(self) -> list[str]:
        """The names of what a call takes."""
        if isinstance(self.value, Op):
            return [*self.value.input_names, *self.value.attr_names]
        if self.kind in ("property", "module", "value"):
            return []
        try:
            return list(inspect.signature(self.function).parameters)
        except (TypeError, ValueError):
            return []

    @cached_property
    def usage(self) -> str:
        """The call as one writes it: without the types of arguments, which the docstring tells."""
        short = self.name.rpartition(".")[2]
        if isinstance(self.value, Op):
            return short + self.value.usage[len(self.value.name) :]
        if self.kind in ("property", "module", "value"):
            return short
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):
            return f"{short}(...)"
        taken = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        is_bound = self.kind == "method" and not isinstance(self.value, staticmethod)
        taken = taken[1:] if is_bound else taken
        plain = signature.replace(parameters=taken, return_annotation=signature.empty)
        return short + re.sub(r"<(?:function|class|object|built-in)[^>]*>", "...", str(plain))

    @cached_property
    def raises(self) -> set[str]:
        """The errors that stand in its own code (of a class: in `__init__`), by name."""
        code = vars(self.value).get("__init__") if self.kind == "class" else self.function
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
        except (TypeError, OSError, SyntaxError):
            return set()
        raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
        called = [each.func if isinstance(each, ast.Call) else each for each in raised]
        names = {getattr(each, "id", getattr(each, "attr", "")) for each in called}
        return {name for name in names if name[:1].isupper()}

    @cached_property
    def place(self) -> tuple[Path, int] | None:
        """The file, as `d2lmini/...`, and the line where it is defined."""
        code = getattr(self.function, "__code__", None)
        file = code.co_filename if code else _file_of(self.function)
        if not file or not Path(file).is_relative_to(HOME):
            return None
        # `inspect` would parse the whole file for each class.
        line = code.co_firstlineno if code else 1
        if self.kind == "class":
            found = re.search(rf"^class {self.value.__name__}\b", _text_of(file), re.M)
            line = _text_of(file).count("\n", 0, found.start()) + 1 if found else 1
        return Path(file).relative_to(HOME), line


def _file_of(value: Any) -> str | None:
    try:
        return inspect.getsourcefile(value)
    except TypeError:
        return None


@cache
def _text_of(file: str) -> str:
    return Path(file).read_text(encoding="utf-8")


def module_of(space: str) -> Any:
    """The module, or the namespace of operations, that programs call so."""
    space = space.partition(":")[0]
    if space == "d2lmini":
        return d2lmini
    found: Any = d2lmini
    for part in space.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(f"{found.__name__}.{part}")
    return found


def names_of(space: str) -> list[str]:
    """What the space shows, in its own order."""
    module = module_of(space)
    if ":" in space:
        return space.partition(":")[2].split(",")
    if isinstance(module, Namespace):
        return dir(module)
    held = vars(module)
    listed = list(held.get("__all__", ()))
    if not listed:
        listed = [name for name, value in held.items() if _is_shown(module, name, value)]
    operations = [n for n, v in held.items() if isinstance(v, Op) and not n.startswith("_")]
    names = dict.fromkeys([*listed, *operations])
    return [name for name in names if f"{space}.{name}" not in NOT_OURS]


def _is_shown(module: Any, name: str, value: Any) -> bool:
    home = getattr(value, "__module__", None) or ""
    inside = home == module.__name__ or home.startswith(f"{module.__name__}.")
    return inside and not name.startswith("_") and not inspect.ismodule(value)


@cache
def entries_of(space: str) -> list[Entry]:
    """The public names of a space; what has several names there is one entry."""
    module = module_of(space)
    found: dict[int, Entry] = {}
    for name in names_of(space):
        value = getattr(module, name)
        if id(value) in found:
            found[id(value)].also.append(name)
            continue
        entry = Entry(space.partition(":")[0], name, value)
        if inspect.isclass(value):
            entry.members = list(_members_of(entry))
        found[id(value)] = entry
    return list(found.values())


def _members_of(entry: Entry) -> Iterator[Entry]:
    """Methods and properties that the class defines, and those of bases that are not public."""
    seen = set()
    for cls in entry.value.__mro__:
        if not cls.__module__.startswith("d2lmini") or (
            cls is not entry.value and cls in _public_classes()
        ):
            continue
        for name, value in vars(cls).items():
            code = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            is_method = inspect.isfunction(code) or isinstance(value, (property, cached_property))
            if is_method and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield Entry(entry.space, f"{entry.name}.{name}", value, owner=entry.value)


@cache
def _public_classes() -> set[type]:
    spaces = " ".join(SPACES.values()).split()
    values = [getattr(module_of(space), n) for space in spaces for n in names_of(space)]
    return {value for value in values if inspect.isclass(value)}


def all_entries() -> Iterator[Entry]:
    """Every entry of every space, classes before their members."""
    for spaces in SPACES.values():
        for space in spaces.split():
            for entry in entries_of(space):
                yield entry
                yield from entry.members
