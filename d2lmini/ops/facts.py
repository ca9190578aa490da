"""Facts of an op that graphs and files ask for, each stated where the op is declared.

`core` says how an op computes. Graphs and file formats also need to know which inputs are optional,
which shapes the weights have, and the names of the outputs, of MXNet's op and of ONNX's. These
facts are keywords of the declaration, or functions attached to the op:

    @op(infer=..., flops=..., optional=lambda attrs: () if attrs["no_bias"] else ("bias",))
    def FullyConnected(xp, data, weight, bias=None, *, num_hidden: int, no_bias: bool = False):
        ...

    @FullyConnected.infer_inputs                         # data is known: infer the weight's shape
    def _(given, out, attrs):
        return {"weight": (attrs["num_hidden"], given["data"][-1])}

Most ops state no facts: the defaults below follow from the name and the rest of the declaration.

>>> from d2lmini.ops.core import registry
>>> registry["BatchNorm"].output_names, registry["split"].mxnet_name, registry["erf"].onnx
(('output', 'mean', 'var'), 'SliceChannel', 'Erf')

Shapes in a graph may be known in part: None is an unknown shape, 0 an unknown size.

>>> merged((0, 10), (32, 0)), is_known((32, 0))
((32, 10), False)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from d2lmini.base import MXNetError
from d2lmini.base.dtypes import CHAR

Partial = tuple[int, ...] | None


class Conflict(Exception):
    """Two known facts about a shape contradict each other."""


#: What wrong attributes, labels and tables of a file may cause in rules and ops.
MISFITS = (
    Conflict, MXNetError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError,
    AssertionError,
)  # fmt: skip


def merged(a: Partial, b: Partial) -> Partial:
    """Combine two partial shapes; Conflict if they contradict each other."""
    if a is None or b is None or a == b:
        return b if a is None else a
    if len(a) != len(b) or any(m != n and m and n for m, n in zip(a, b)):
        raise Conflict(f"expected {b}, got {a}")
    return tuple([m or n for m, n in zip(a, b)])


def is_known(shape: Partial) -> bool:
    """True if all sizes are known."""
    return shape is not None and 0 not in shape


Inputs = dict[str, Partial]

#: (shapes of the inputs by name, shape of the output, attributes) -> shapes that follow, by name.
InputRule = Callable[[Inputs, Partial, dict[str, Any]], dict[str, Partial]]

#: Prefixes of ops that MXNet has although their names begin with an underscore.
_MXNET_FAMILIES = ("_contrib_", "_random_", "_sample_")


def dtype_attribute_or_data(attrs: Mapping[str, Any], data: Any, n: int) -> list[Any]:
    """The usual dtype rule: the first output has the dtype of the attribute `dtype`, if there is
    one; the other outputs have the dtype of the inputs."""
    own = attrs.get("dtype")
    return [data] * n if own is None else [own, *[data] * (n - 1)]


class Facts:
    """The facts, with their defaults; `Op` inherits them.

    Graphs:
    input_rule        shapes of inputs inferred from known shapes (`infer_inputs`)
    same_shape        the inputs with the shape of the output, by name; True: all of them
    broadcasts        takes two arrays, of which one may be broadcast
    symbolic          Symbols have this op; MXNet refuses some updates there
    optional          attributes -> names of the optional inputs that such a call uses
    initial           input -> (name, arguments) of the initializer of the variable for that input
    auxiliary         inputs that training changes: auxiliary states, not arguments. Default: the
                      inputs that the op mutates
    output_names      names of the outputs, if not 'output' or 'output0', ...
    free_dtypes       inputs whose dtype is independent of the other inputs' dtype
    presumed_dtypes   dtypes of inputs of which nothing else is known; None: that of data
    mixed_dtypes      takes float16 data with float32 parameters, or labels of any dtype
    float32_parameters  the other inputs are float32 if data is float16
    output_dtypes     (attributes, dtype of data or None, number of outputs) -> their dtypes
    is_loss           the gradient does not depend on the gradient of the output
    draws             (**attributes, with `training`) -> whether a call of an op with `rng` draws
                      random numbers; only such a call takes a key
    compute_in_float32  type characters of the dtypes that `compute` gets as float32 copies, see
                      `in_float32`

    MXNet's files:
    in_mxnet          MXNet has this op
    mxnet_name        the op's name in MXNet, an alias here; None if MXNet has no such op
    mxnet_rule        the op in terms of ops that MXNet has (`written_in_mxnet`)
    mxnet_attributes  (attributes -> texts, texts -> attributes), where a conversion of each
                      attribute is not enough
    mxnet_outputs     number of outputs in MXNet, hidden ones included: a number, or a function of
                      the attributes; None if the same as here
    always_written    attributes that MXNet requires, or for which MXNet has another default
    writes_num_args   the number of inputs is an attribute in MXNet, num_args
    left_out          attributes that the op has in MXNet and not here

    ONNX:
    onnx              the operator: "Erf", or with attributes "Op(alpha, size=nsize)", ours to the
                      right; or a converter (see `d2lmini.onnx.writer`). None: no operator
    integers          what a function of one array makes of integers, see `unary.pointwise`
    """

    __slots__ = ()

    name: str
    arity: int
    elementwise: bool
    variadic: bool
    input_names: tuple[str, ...]

    input_rule: InputRule | None = None
    initial: Mapping[str, tuple[str, dict[str, Any]]] = {}
    auxiliary: tuple[str, ...] | None = None
    output_names: tuple[str, ...] = ()
    free_dtypes: tuple[str, ...] = ()
    mixed_dtypes: bool = False
    presumed_dtypes: Mapping[str, str | None] = {}
    float32_parameters: bool = False
    is_loss: bool = False
    compute_in_float32: str = CHAR

    mxnet_rule: Callable[..., Any] | None = None
    mxnet_attributes: tuple[Callable[..., Any], Callable[..., Any]] | None = None
    mxnet_outputs: int | Callable[[dict[str, Any]], int] | None = None
    always_written: tuple[str, ...] = ()
    writes_num_args: bool = False
    left_out: tuple[str, ...] = ()

    onnx: str | Callable[..., Any] | None = None
    integers: str = ""

    output_dtypes = staticmethod(dtype_attribute_or_data)

    @staticmethod
    def optional(attrs: dict[str, Any]) -> tuple[str, ...]:
        """No optional inputs."""
        return ()

    @staticmethod
    def draws(**attrs: Any) -> bool:
        """Every call draws."""
        return True

    @cached_property
    def same_shape(self) -> bool | tuple[str, ...]:
        """True for elementwise ops, except those that broadcast an input."""
        return self.elementwise and not self.variadic and not self.name.startswith("broadcast_")

    @cached_property
    def broadcasts(self) -> bool:
        """Derived from the name, as in MXNet."""
        return self.elementwise and self.arity == 2 and self.name.startswith("broadcast_")

    def of_one_dtype(self, n: int) -> range | tuple[int, ...]:
        """The positions of those of n inputs that must have one dtype."""
        if self.mixed_dtypes:
            return ()
        if self.variadic:
            return () if self.free_dtypes else range(n)
        names = self.input_names[:n]
        return tuple([i for i, name in enumerate(names) if name not in self.free_dtypes])

    @cached_property
    def symbolic(self) -> bool:
        """Derived from the name: MXNet has Symbols of the updates of many weights alone."""
        return self.variadic or "update" not in self.name

    @cached_property
    def in_mxnet(self) -> bool:
        """Derived from the name: a leading underscore marks our own ops, except some families."""
        return not self.name.startswith("_") or self.name.startswith(_MXNET_FAMILIES)

    @cached_property
    def mxnet_name(self) -> str | None:
        """The op's own name; linear algebra ops have a leading underscore."""
        if not self.in_mxnet:
            return None
        return f"_{self.name}" if self.name.startswith("linalg_") else self.name

    def state(self, facts: dict[str, Any]) -> None:
        """Store the facts of the declaration. TypeError for a keyword that is not listed above."""
        for fact, value in facts.items():
            if not hasattr(Facts, fact):
                raise TypeError(f"op {self.name}: unknown fact {fact!r}; see {__name__}.Facts")
            self.__dict__[fact] = value

    def infer_inputs(self, rule: InputRule) -> InputRule:
        """Attach the rule by which a graph infers shapes of inputs, such as weights and labels,
        from other shapes. The rule returns shapes by name."""
        self.__dict__["input_rule"] = rule
        return rule

    def written_in_mxnet(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Attach the equivalent in MXNet's ops, for an op that MXNet does not have: a function of
        values `(*inputs, **attributes)`, like a gradient rule. The rule raises MXNetError for a
        call that has no equivalent."""
        self.__dict__["mxnet_rule"] = rule
        return rule
