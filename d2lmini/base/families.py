"""Families of classes whose objects are made by name: optimizers, metrics, initializers.

A class declares the parameters of its constructor as typed class attributes, and a family finds the
class by each of its names, or by JSON text with settings:

>>> import inspect
>>> class Shape(Declared):
...     color: str = "black"
...     def __init__(self, *args, **kwargs):
...         self._take(args, kwargs)
>>> shapes = Family(Shape, "shape")
>>> @shapes.alias("ball")
... class Disc(Shape):
...     radius: float = 1.0
>>> inspect.signature(Disc)
<Signature (color='black', radius=1.0)>
>>> shapes.create("ball", radius=2).radius, shapes.create('["disc", {"color": "red"}]').color
(2, 'red')
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from d2lmini.base import callsite, explain_left_out

#: The value of a field without a default.
REQUIRED: Any = inspect.Parameter.empty

Class = TypeVar("Class", bound=type)


class Declared:
    """Base class: typed class attributes with a value are the parameters of the constructor, their
    values the defaults, and become attributes of the object. Those of base classes come first.

    _places  a field with a place below 0 comes before those without, above 0 after them
    _aliases names of parameters that are not those of the attributes
    _passes_on  parameters that are no attributes, None by default; "kwargs": any keywords
    """

    _own: ClassVar[dict[str, Any]] = {}  # fields that the class itself declares
    _fields: ClassVar[dict[str, Any]] = {}
    _places: ClassVar[dict[str, int]] = {}
    _aliases: ClassVar[dict[str, str]] = {}
    _passes_on: ClassVar[tuple[str, ...]] = ()
    _signature: ClassVar[inspect.Signature] = inspect.Signature()
    __signature__: ClassVar[inspect.Signature | None]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        types = {k: str(t) for k, t in cls.__annotations__.items() if k in vars(cls)}
        cls._own = {name: vars(cls)[name] for name, t in types.items() if "ClassVar" not in t}
        fields: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            fields |= vars(base).get("_own", {})
        known = {**fields, **dict.fromkeys(cls._passes_on)}
        names = sorted(known, key=lambda name: cls._places.get(name, 0))
        cls._fields = {name: fields[name] for name in names if name in fields}
        kind = inspect.Parameter
        parameters = [
            kind(cls._aliases.get(name, name), kind.POSITIONAL_OR_KEYWORD, default=known[name])
            for name in names
            if name != "kwargs"
        ]
        more = [kind("kwargs", kind.VAR_KEYWORD)] if "kwargs" in known else []
        cls._signature = inspect.Signature([*parameters, *more])
        cls.__signature__ = None if "__init__" in vars(cls) else cls._signature

    def _take(self, args: tuple, kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Set the fields to the arguments of a constructor. Returns the arguments by the names of
        their parameters, and those to pass on."""
        try:
            given = self._signature.bind(*args, **kwargs)
        except TypeError as problem:
            raise TypeError(f"{type(self).__name__}(): {problem}") from None
        given.apply_defaults()
        own = given.arguments
        more = {name: own.pop(name) for name in self._passes_on}
        more |= more.pop("kwargs", {})
        vars(self).update({name: own[self._aliases.get(name, name)] for name in self._fields})
        return own, more


class Family(dict[str, Any]):
    """The classes of one kind ("metric") by each of their names, in lower case."""

    def __init__(self, base: type, kind: str):
        super().__init__()
        self.base = base
        self.kind = kind

    def register(self, klass: Class) -> Class:
        """Class decorator: register the class for `create` under its lower-case name."""
        return self.alias()(klass)

    def alias(self, *names: str) -> Callable[[Class], Class]:
        """Class decorator: register the class for `create` under its own name and these names."""

        def enter(klass: Class) -> Class:
            if not (isinstance(klass, type) and issubclass(klass, self.base)):
                raise TypeError(
                    f"only subclasses of {self.base.__name__} can be registered, got {klass!r}"
                )
            for name in (klass.__name__.lower(), *map(str.lower, names)):
                known = self.get(name, klass)
                if (known.__module__, known.__qualname__) != (klass.__module__, klass.__qualname__):
                    callsite.warn(
                        f"{self.kind} {klass.__module__}.{klass.__qualname__} is overriding "
                        f"{known.__module__}.{known.__qualname__}: it takes the name {name!r}"
                    )
                self[name] = klass
            return klass

        return enter

    def create(self, name: str | Mapping[str, Any], /, *args: Any, **kwargs: Any) -> Any:
        """Make an object of the class with this name. Settings and a name may also be one dict,
        `{kind: name, ...}`, or JSON text: of such a dict, or `["name", {settings}]`.

        ValueError for an unknown name (the message lists the known names), and for other text.
        """
        if not isinstance(name, str):
            settings = {key: value for key, value in name.items() if key != self.kind}
            return self.create(name[self.kind], *args, **{**settings, **kwargs})
        if name.startswith(("[", "{")):
            return self._create_from_json(name, args, kwargs)
        klass = self.get(name.lower())
        if klass is None:
            raise ValueError(
                explain_left_out(f"{self.kind}.{name}")
                or f"no {self.kind} is named {name[:100]!r}; there are {', '.join(sorted(self))}"
            )
        return klass(*args, **kwargs)

    def _create_from_json(self, text: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Make the described object; the text may come from a file."""
        try:
            said = json.loads(text)
            if isinstance(said, list):
                name, settings = said
                said = {self.kind: name, **settings}
            return self.create(said, *args, **kwargs)
        except (
            ValueError, TypeError, KeyError, AttributeError, AssertionError, RecursionError,
        ) as why:  # fmt: skip
            raise ValueError(
                f'JSON text of a {self.kind} is ["name", {{settings}}]; in {text[:200]!r}: '
                f"{str(why)[:300] or type(why).__name__}"
            ) from None
