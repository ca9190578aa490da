"""The public API of a tree as text: usage and first line of every name, and MXNet's names.

Where a name's home has moved within the library it is looked for everywhere: what counts is that
programs reach it by its public path, or get it from a call.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from typing import Any

from public_names import SPACES, Entry, names_of

import d2lmini

#: Files of MXNet's packages that programs import from.
FILES = """
    gluon.block gluon.parameter gluon.trainer gluon.utils gluon.nn.activations
    gluon.nn.basic_layers gluon.nn.conv_layers gluon.rnn.rnn_cell gluon.rnn.rnn_layer
    gluon.data.dataloader gluon.data.dataset gluon.data.sampler gluon.data.vision.datasets
    gluon.data.vision.transforms io.io io.utils kvstore.kvstore kvstore.base ndarray.ndarray
    ndarray.register ndarray.utils optimizer.optimizer symbol.symbol symbol.register
    contrib.onnx executor name attribute initializer metric lr_scheduler""".split()


def record() -> dict[str, Any]:
    found: dict[str, Any] = {"names": {}, "mxnet": {}}
    public: set[str] = set()
    for space in " ".join(SPACES.values()).split():
        listed = listed_in(space)
        for path, value, owner in names_in(space):
            is_listed = path[len(space) + 1 :].partition(".")[0] in listed or ":" in space
            found["names"][path] = {**described(path, value, owner), "listed": is_listed}
            if is_listed and owner is None:
                public.add(path.rpartition(".")[2])
    d2lmini.install_as_mxnet()
    import mxnet

    for name in ["", *(f".{each}" for each in [*dir(mxnet), *FILES])]:
        found["mxnet"][f"mxnet{name}"] = offered(f"mxnet{name}", public)
    return found


def listed_in(space: str) -> set[str]:
    """The names that a space shows on purpose; of `nd` and `sym` also functions of other homes."""
    module = find(space)
    try:
        found = set(names_of(space))
    except Exception:
        found = set()
    if space in ("nd", "sym"):
        found |= {name for name in shown(module) if inspect.isfunction(getattr(module, name))}
    return found - {"explain"}


def names_in(space: str) -> Iterator[tuple[str, Any, Any]]:
    """(path, value, None) of the space's names, (path.member, value, class) of their members."""
    home, _, listed = space.partition(":")
    module = find(home)
    for name in listed.split(",") if listed else shown(module):
        value = getattr(module, name, None) if module is not None else None
        if value is None and listed:
            value = class_anywhere(name)
        path = f"(returned) {name}" if listed else f"{home}.{name}"
        yield path, value, None
        if inspect.isclass(value) and value.__module__.startswith("d2lmini"):
            for member in dir(value):
                kept = not member.startswith("_") and member not in dir(BaseException)
                code = inspect.getattr_static(value, member, None)
                if kept and defined_here(value, member) and code is not None:
                    yield f"{path}.{member}", code, value


def shown(module: Any) -> list[str]:
    """All that a module shows, whether meant to or not: no modules, no names of other libraries."""
    listed = set(getattr(module, "__all__", ()))
    if not inspect.ismodule(module):
        return sorted({*listed, *dir(module)})
    found = set(listed)
    for name in dir(module):
        value = getattr(module, name, None)
        home = getattr(value, "__module__", None) or "d2lmini"
        if not name.startswith("_") and not inspect.ismodule(value) and str(home)[:7] == "d2lmini":
            found.add(name)
    return sorted(found)


def find(path: str) -> Any:
    """The module or namespace that programs call so; None if there is none."""
    found: Any = d2lmini
    for part in [] if path == "d2lmini" else path.split("."):
        if not hasattr(found, part):
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except (ImportError, AttributeError):
                return None
        found = getattr(found, part, None)
    return found


def class_anywhere(name: str) -> Any:
    """The class or function of that name, in whatever module of the library."""
    for module in pkgutil.walk_packages(d2lmini.__path__, "d2lmini.", onerror=lambda _: None):
        try:
            value = vars(importlib.import_module(module.name)).get(name)
        except (Exception, SystemExit):
            continue
        if getattr(value, "__module__", "") == module.name:
            return value
    return None


def defined_here(cls: type, member: str) -> bool:
    return any(member in vars(c) for c in cls.__mro__ if c.__module__.startswith("d2lmini"))


def described(path: str, value: Any, owner: Any) -> dict[str, Any]:
    """What a name is: its kind, its usage without types, its first line."""
    last = path.rpartition(".")[2]
    entry = Entry("", f"{owner.__name__}.{last}" if owner else last, value, owner=owner)
    if value is None:
        return {"kind": "absent", "usage": "", "line": ""}
    kind = "property" if owner and inspect.isdatadescriptor(value) else entry.kind
    usage = usage_of(entry) if kind in ("operation", "class", "method", "function") else last
    if kind == "value" and isinstance(value, (int, float, str, tuple, bool)):
        usage = f"{last} = {value!r}"[:200]
    line = entry.doc.partition("\n")[0] if kind not in ("value", "module") else ""
    return {"kind": kind, "usage": re.sub(r" at 0x\w+", "", usage), "line": line}


def usage_of(entry: Entry) -> str:
    try:
        return " ".join(entry.usage.split())
    except Exception as problem:
        return f"{entry.name}: {type(problem).__name__}"


def offered(path: str, public: set[str]) -> str | list[str]:
    """What `import mxnet...` gives: a word for what it is, or the public names that it has."""
    try:
        value = importlib.import_module(path)
    except ImportError:
        value = sys.modules.get("mxnet")
        for part in path.split(".")[1:]:
            value = getattr(value, part, None)
    if not inspect.ismodule(value):
        return type(value).__name__
    if type(value).__name__ == "LeftOutModule":
        return "left out"
    return sorted(name for name in public if safe_has(value, name))


def safe_has(value: Any, name: str) -> bool:
    try:
        return hasattr(value, name)
    except Exception:
        return False
