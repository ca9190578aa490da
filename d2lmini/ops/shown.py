"""The name under which pictures show an op: what a program writes to call the op.

>>> [shown_name(name) for name in ("broadcast_mul", "_plus_scalar", "_rminus_scalar", "dot")]
['*', '+', '-', 'dot']
>>> [shown_name(name) for name in ("_ones", "_random_uniform", "CopyGPU2CPU")]
['nd.ones', 'nd.random.uniform', 'CopyGPU2CPU']
>>> shown_with_number("_plus_scalar", "1"), shown_with_number("_rminus_scalar", "2.0")
('+ 1', '2 -')

Errors, traces and printed tables keep the op's own name, which programs compare with.
"""

from __future__ import annotations

from d2lmini.ops.core import registry


def shown_name(name: str) -> str:
    """An operator's sign, the function that makes an array, or the name itself."""
    op = registry.get(name)
    if op is not None and op.family is not None and op.family.operator:
        return op.family.operator.split()[0]  # type: ignore[no-any-return]
    if op is None or not name.startswith("_") or op.arity or op.variadic:
        return name
    return "nd." + name[1:].replace("random_", "random.", 1)


def shown_with_number(name: str, number: str) -> str:
    """The operator of an op on an array and a number, with the number on its side of the sign; ""
    if the op has no sign."""
    sign = shown_name(name)
    if sign == name:
        return ""
    parts = [sign, f"{float(number):g}"]
    return " ".join(reversed(parts) if name.startswith("_r") else parts)
