"""The functions of `nd.random` and `sym.random`: one for each row of `distributions.py`.

A function takes the distribution's parameters, numbers or all values, then the options of its
namespace, such as `shape`:

>>> import inspect
>>> from d2lmini import nd
>>> list(inspect.signature(nd.random.gamma).parameters)
['alpha', 'beta', 'shape', 'dtype', 'ctx', 'out']

`np.random` has other names, defaults and formulas, see `np/random.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from d2lmini.base.families import by_name, with_parameters_of
from d2lmini.ops.core import Op, registry
from d2lmini.ops.distributions import DISTRIBUTIONS, Distribution
from d2lmini.ops.signature import named

Function = Callable[..., Any]

#: The ops in the shape of an array, by their names in the namespaces.
LIKE = {f"{name}_like": registry[f"_random_{name}_like"] for name in DISTRIBUTIONS}


def functions(draw: Function) -> dict[str, Function]:
    """The functions that call draw(name, parameters, **options), of the module of `draw`: one for
    each distribution, with MXNet's names and order, and randint and randn."""
    options = list(inspect.signature(draw).parameters.values())[2:]

    def of_row(name: str, row: Distribution) -> Function:
        def function(**given: Any) -> Any:
            parameters = {p: given.pop(p, default) for p, default in row.defaults.items()}
            return draw(name, parameters, **given)

        function.__doc__ = row.draw.__doc__
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        own = [inspect.Parameter(p, kind, default=default) for p, default in row.defaults.items()]
        return by_name(function, [*own, *options])

    with_options = with_parameters_of(draw, without="name parameters")

    @with_options
    def exponential(scale=1, **options):
        """Exponential with mean `scale`."""
        return draw("exponential", {"lam": 1.0 / scale}, **options)

    @with_options
    def randint(low, high, shape=None, dtype="int32", **options):
        """Integers from low (included) to high (excluded), int32 by default."""
        return draw("randint", {"low": low, "high": high}, shape, dtype, **options)

    def randn(*shape, loc=0, scale=1, **kwargs):
        """`normal` with the sizes as arguments: randn(2, 3)."""
        return draw("normal", {"loc": loc, "scale": scale}, shape, **kwargs)

    made = {name: of_row(name, row) for name, row in DISTRIBUTIONS.items()}
    made |= {"exponential": exponential, "randint": randint, "randn": randn}
    for name, function in made.items():
        named(function, draw.__module__, name, function.__doc__ or "")
    return made


def op_for(name: str, parameters: dict[str, Any], kind: type) -> Op:
    """The op for parameters that are numbers, or that all are values of this kind. TypeError for
    numbers and values together."""
    given = [isinstance(value, kind) for value in parameters.values()]
    if True not in given:
        return registry[f"_random_{name}"]
    sample = registry.get(f"_sample_{name}")
    if sample is not None and all(given):
        return sample
    both = f"both be numbers or both {kind.__name__}s" if sample else "be numbers"
    types = " and ".join(type(value).__name__ for value in parameters.values())
    raise TypeError(f"random.{name}: {' and '.join(parameters)} must {both}, got {types}")
