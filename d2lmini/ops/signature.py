"""The signature of an op: read from its compute function, or stated for a generated function.

The parameters of an op's compute function are the op's inputs and attributes. For ops that come in
families a loop generates the functions; their signatures are stated explicitly:

>>> def double(xp, x, *, times: int = 1): ...
>>> signature_of(double)
Signature(inputs=('x',), words=('times',), defaults={'times': 1}, \
annotations={'times': 'int'}, n_required=1, variadic=False)
>>> @with_signature(signature_of(double)._replace(inputs=("x", "y"), n_required=2))
... def double_two(xp, *arrays, out=None, **attrs): ...
>>> signature_of(double_two)[:2]
(('x', 'y'), ('times', 'out'))

The annotation of an attribute says how a call checks and converts it. A graph file holds attributes
as strings; users write numbers, tuples and NumPy scalars. All forms convert to the same value:

>>> converter_of("Shape")("(2, 3)"), converter_of("Shape")([2, 3]), converter_of("bool")("True")
((2, 3), (2, 3), True)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from d2lmini.base import ArgumentTypeError
from d2lmini.base.dtypes import bfloat16


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
    attributes, and takes `out`."""

    def state(compute: Any) -> Any:
        compute.signature = signature._replace(words=(*signature.words, "out"))
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


# -- attributes ------------------------------------------------------------------------------------

Shape = tuple[int, ...]
Bounds: TypeAlias = "tuple[int | None, ...]"
Axes: TypeAlias = "int | tuple[int, ...] | None"
DType: TypeAlias = "str | type | np.dtype"
Number: TypeAlias = "int | float"


_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def _as_bool(value: Any) -> bool:
    if isinstance(value, str):
        value = _TRUTHS.get(value.lower())
    if isinstance(value, (bool, int, np.bool_, np.integer)):
        return bool(value)
    raise TypeError("expected True or False")


def _as_int(value: Any) -> int:
    is_whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    if is_whole or isinstance(value, (str, int, np.integer)):
        return int(value)
    raise TypeError("expected an integer")


def _as_float(value: Any) -> float:
    if isinstance(value, (str, int, float, np.number, np.bool_)):
        return float(value) + 0.0  # -0.0 is 0.0: calls are remembered by what is equal (`Op.bound`)
    raise TypeError("expected a number")


def _as_number(value: Any) -> int | float:
    if isinstance(value, str):
        return float(value) if set(value.lower()) & set(".en") else int(value)
    if isinstance(value, (np.number, np.bool_)):
        value = value.item()
    if isinstance(value, (int, float)):
        float(value)  # OverflowError for an integer that no dtype holds
        return value
    raise TypeError("expected a number")


def _as_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError("expected a string")


def _as_shape(value: Any) -> Shape:
    if type(value) is tuple and all([type(n) is int for n in value]):  # as most calls give it
        return value
    if value is None:  # an unknown shape in MXNet
        return ()
    return tuple(map(_as_int, _as_bounds(value)))


def _as_bounds(value: Any) -> Bounds:
    if isinstance(value, str):
        parts = [part.strip() for part in value.strip("()[] ").split(",")]
        value = [None if part == "None" else part for part in parts if part]
    elif value is None or isinstance(value, (int, np.integer)):
        value = (value,)
    return tuple(None if v is None else _as_int(v) for v in value)


def _as_axes(value: Any) -> Any:
    axes = tuple(map(_as_int, _as_bounds(value)))
    is_text = isinstance(value, str) and len(axes) == 1 and not {"(", "["} & set(value)
    return axes[0] if is_text or isinstance(value, (int, np.integer)) else axes


def as_dtype(value: Any, none: str = "float64") -> np.dtype:
    """The NumPy dtype of a name, type or dtype, or for None of `none`; ArgumentTypeError if MXNet
    has no such dtype, ImportError for bfloat16 without the package ml_dtypes."""
    value = none if value is None else value
    try:
        # NumPy parses a string as source text unless it is a plain name.
        if isinstance(value, str) and value != "?" and not value.lstrip("<>=|").isidentifier():
            raise TypeError(f"dtype {value[:100]!r} is not one of {', '.join(DTYPES)}")
        dtype = bfloat16() if isinstance(value, str) and value == "bfloat16" else np.dtype(value)
        if dtype.name not in DTYPES:
            raise TypeError(f"dtype {dtype} is not one of {', '.join(DTYPES)}")
    except TypeError as problem:
        raise ArgumentTypeError(str(problem)) from None
    return dtype


DTYPES = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool", "bfloat16")

_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "bool": _as_bool, "int": _as_int, "float": _as_float, "str": _as_str,
    "Number": _as_number, "Shape": _as_shape, "Bounds": _as_bounds, "Axes": _as_axes,
    "DType": as_dtype,
}  # fmt: skip


def converter_of(annotation: str) -> Callable[[Any], Any]:
    """The converter for `int`, `float | None`, ...; None itself is allowed with `| None`.

    TypeError for an unknown annotation: a type object, where a module does not begin with `from
    __future__ import annotations`, or a name that is not in the table."""
    word = annotation.split("|")[0].strip() if isinstance(annotation, str) else annotation
    if word not in _CONVERTERS:
        raise TypeError(
            f"an attribute of an op is annotated with one of {', '.join(_CONVERTERS)}, as a word "
            f"(from __future__ import annotations), got {annotation!r}"
        )
    convert = _CONVERTERS[word]
    if "None" not in annotation:
        return convert
    return lambda value: None if value is None or value == "None" else convert(value)
