"""The signature of an op: read from its compute function, or stated for a generated function.

The parameters of an op's compute function are the op's inputs and attributes. For ops that come in
families a loop generates the functions; their signatures are stated explicitly:

>>> def double(xp, x, *, times: int = 1, out=None): ...
>>> signature_of(double)
Signature(inputs=('x',), words=('times', 'out'), defaults={'times': 1, 'out': None}, \
annotations={'times': 'int'}, n_required=1, variadic=False)
>>> @with_signature(signature_of(double)._replace(inputs=("x", "y"), n_required=2))
... def double_two(xp, *arrays, **attrs): ...
>>> signature_of(double_two).inputs
('x', 'y')
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Signature(NamedTuple):
    """Parameters of an op's function after `xp`.

    inputs      names of the inputs; a single name if any number of inputs is allowed
    words       names of the keywords: attributes, and arguments that dispatch supplies (out, rng)
    defaults    of the keywords that have one
    annotations of the keywords that have one: how an attribute is checked and converted
    n_required  number of inputs that a call must give
    variadic    any number of inputs
    """

    inputs: tuple[str, ...]
    words: tuple[str, ...]
    defaults: Mapping[str, Any]
    annotations: Mapping[str, str]
    n_required: int = 0
    variadic: bool = False

    def without(self, *words: str) -> Signature:
        """The same signature without some of the keywords."""
        return self._replace(words=tuple([word for word in self.words if word not in words]))


def signature_of(compute: Callable[..., Any], skip: int = 1) -> Signature:
    """The stated signature, else the one read from the function without its first parameters:
    `xp`; a formula (`composed.py`) has none to skip."""
    stated: Signature | None = getattr(compute, "signature", None)
    if stated is not None:
        return stated
    code = compute.__code__
    n, keywords = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    variadic = bool(code.co_flags & 0x04)  # CO_VARARGS: the function has *data
    names = code.co_varnames
    n_required = n - skip - len(compute.__defaults__ or ())
    annotations = {k: v for k, v in compute.__annotations__.items() if k in names[n:keywords]}
    return Signature(
        (names[keywords],) if variadic else names[skip:n], names[n:keywords],
        compute.__kwdefaults__ or {}, annotations, n_required, variadic,
    )  # fmt: skip


def with_signature(signature: Signature, doc: str | None = None) -> Callable[[Callable], Callable]:
    """State the signature (and the docstring) of a function that is written for any inputs and
    attributes."""

    def state(compute: Any) -> Any:
        compute.signature = signature
        compute.__doc__ = doc or compute.__doc__
        return compute

    return state


def text_of(op: Any) -> str:
    """The docstring of `op` without its example, which is for `nd`: for functions and methods that
    apply `op`."""
    return (op.__doc__ or "").partition(">>> ")[0].rstrip()


def named(function: Any, module: str, qualname: str, doc: str = "") -> Any:
    """Name and document a generated function; `pickle` finds it as `module.qualname`."""
    function.__name__ = qualname.rpartition(".")[2]
    function.__module__, function.__qualname__ = module, qualname
    function.__doc__ = doc or function.__doc__
    function.__annotations__.setdefault("return", "Any")
    return function


def name_function(function: Any, op: Any, module: str, qualname: str) -> Callable[..., Any]:
    """Name and document a function that applies `op`: `help` and `inspect` explain it, and `pickle`
    finds it as `module.qualname`."""
    named(function, module, qualname, f"`{op.usage}`\n\n{text_of(op)}")
    function.__wrapped__ = op  # inspect asks `op` for the signature, which few programs need
    return function


def python_signature(op: Any, last: str = "out name kwargs") -> inspect.Signature:
    """What `inspect.signature` says of an op as a function: inputs, attributes, then what every op
    takes. What may be left out has a default. Without inputs `ctx` comes before `dtype`.

    >>> from d2lmini.ops.core import registry
    >>> python_signature(registry["clip"])
    <Signature (data, a_min, a_max, out=None, name=None, **kwargs)>
    """
    place, empty = inspect.Parameter, inspect.Parameter.empty
    kind: Any = place.POSITIONAL_OR_KEYWORD
    parameters: list[inspect.Parameter] = []
    names = [*op.input_names, *op.attr_names, *last.replace("kwargs", "").split()]
    if op.variadic:
        kind, parameters = place.KEYWORD_ONLY, [place(names.pop(0), place.VAR_POSITIONAL)]
    if not op.input_names and "dtype" in names and "ctx" not in names:
        names.insert(names.index("dtype"), "ctx")
    required = {*op.input_names[: op.n_required], *op.required}
    for i, name in enumerate(names):
        # After a parameter with a default, Python wants one for each.
        is_required = required >= {name, *(() if op.variadic else names[:i])}
        default = empty if is_required else op.defaults.get(name)
        parameters.append(place(name, kind, default=default))
    if "kwargs" in last:
        parameters.append(place("kwargs", place.VAR_KEYWORD))
    return inspect.Signature(parameters)


class PythonSignature:
    """The attribute `__signature__` of every op, made when it is asked for. The class of ops has
    none. (A `__getattr__` would do too, but slows down every other look-up of an attribute.)"""

    def __get__(self, op: Any, owner: type) -> inspect.Signature:
        if op is None:
            raise AttributeError("__signature__")
        return python_signature(op)
