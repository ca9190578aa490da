"""Facts of an op that graphs and files ask for, each stated where the op is declared.

`core` says how an op computes. Who writes a graph down also asks: which inputs may be left out, of
what shape are the weights, what are the outputs called, what does MXNet call the op, and ONNX? The
answers are keywords of the declaration, or functions attached to the op:

    @op(infer=..., flops=..., optional=lambda attrs: () if attrs["no_bias"] else ("bias",))
    def FullyConnected(xp, data, weight, bias=None, *, num_hidden: int, no_bias: bool = False):
        ...

    @FullyConnected.infer_inputs                         # data is known: what is the weight like?
    def _(given, out, attrs):
        return {"weight": (attrs["num_hidden"], given["data"][-1])}

Most ops state none: the defaults below follow from the name and from what the op declares anyway.

>>> from d2lmini.ops.core import registry
>>> registry["BatchNorm"].output_names, registry["split"].mxnet_name, registry["LRN"].onnx
(('output', 'mean', 'var'), 'SliceChannel', 'LRN(alpha, beta, bias=knorm, size=nsize)')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from d2lmini.ops.partial import Partial

Inputs = dict[str, Partial]

#: (shapes of the inputs by name, shape of the output, attributes) -> what follows for them.
InputRule = Callable[[Inputs, Partial, dict[str, Any]], dict[str, Partial]]

#: Ops whose names begin with an underscore and that MXNet has all the same, by prefix.
_MXNET_FAMILIES = ("_contrib_", "_random_", "_sample_")


def dtype_attribute_or_data(attrs: Mapping[str, Any], data: Any, n: int) -> list[Any]:
    """The usual rule for dtypes: the first output is of the attribute `dtype`, if there is one; the
    others, or all, are like the inputs."""
    own = attrs.get("dtype")
    return [data] * n if own is None else [own, *[data] * (n - 1)]


class Facts:
    """The facts, with their defaults; `Op` inherits them.

    Graphs:
    input_rule        shapes of inputs from those that are known (`infer_inputs`)
    same_shape        all inputs and the output are of one shape
    broadcasts        it takes a pair of arrays, of which one may be stretched
    optional          attributes -> names of the optional inputs that such a call uses
    initial           input -> name of the initializer of a variable that stands for it
    auxiliary         inputs that training changes: states of a net, not arguments. Default: those
                      that the op mutates
    output_names      names of the outputs, where they are not 'output' or 'output0', ...
    free_dtypes       inputs whose dtype says nothing of the others', nor they of it
    mixed_dtypes      takes float16 data beside float32 parameters, or labels of any dtype
    float32_parameters  its other inputs are float32 if data is float16
    output_dtypes     (attributes, dtype of data or None, number of outputs) -> their dtypes
    is_loss           its gradient does not depend on what comes after it

    MXNet's files:
    in_mxnet          MXNet has this op
    mxnet_name        its name there, which is an alias here; None if MXNet has no such op
    mxnet_rule        the op in ops that MXNet has (`written_in_mxnet`)
    mxnet_attributes  (attributes -> texts, texts -> attributes) where the two differ by more than
                      conversion
    mxnet_outputs     how many outputs it has there with hidden ones: a number, or a function of the
                      attributes; None if as many as here
    always_written    attributes that MXNet requires, or has another default for
    counted           its number of inputs is an attribute there, num_args

    ONNX:
    onnx              the operator: "Relu", or with attributes "LRN(alpha, size=nsize)", ours at the
                      right; or a converter (see `d2lmini.onnx.writer`). None: it has none
    """

    __slots__ = ()

    name: str
    arity: int
    elementwise: bool
    variadic: bool

    input_rule: InputRule | None = None
    initial: Mapping[str, str] = {}
    auxiliary: tuple[str, ...] | None = None
    output_names: tuple[str, ...] = ()
    free_dtypes: tuple[str, ...] = ()
    mixed_dtypes: bool = False
    float32_parameters: bool = False
    is_loss: bool = False

    mxnet_rule: Callable[..., Any] | None = None
    mxnet_attributes: tuple[Callable[..., Any], Callable[..., Any]] | None = None
    mxnet_outputs: int | Callable[[dict[str, Any]], int] | None = None
    always_written: tuple[str, ...] = ()
    counted: bool = False

    onnx: str | Callable[..., Any] | None = None

    output_dtypes = staticmethod(dtype_attribute_or_data)

    @staticmethod
    def optional(attrs: dict[str, Any]) -> tuple[str, ...]:
        """None of the optional inputs."""
        return ()

    @cached_property
    def same_shape(self) -> bool:
        """Elementwise ops are, but those that stretch an input."""
        return self.elementwise and not self.variadic and not self.name.startswith("broadcast_")

    @cached_property
    def broadcasts(self) -> bool:
        """By the name, as in MXNet."""
        return self.elementwise and self.arity == 2 and self.name.startswith("broadcast_")

    @cached_property
    def in_mxnet(self) -> bool:
        """By the name: an underscore in front marks what is ours alone, but for some families."""
        return not self.name.startswith("_") or self.name.startswith(_MXNET_FAMILIES)

    @cached_property
    def mxnet_name(self) -> str | None:
        """The op's own name; those of linear algebra have an underscore in front."""
        if not self.in_mxnet:
            return None
        return f"_{self.name}" if self.name.startswith("linalg_") else self.name

    def state(self, facts: dict[str, Any]) -> None:
        """Take the facts of the declaration. TypeError for a word that is none of the above."""
        for fact, value in facts.items():
            if not hasattr(Facts, fact):
                raise TypeError(f"op {self.name}: unknown fact {fact!r}; see {__name__}.Facts")
            self.__dict__[fact] = value

    def infer_inputs(self, rule: InputRule) -> InputRule:
        """Attach the rule by which a graph infers shapes of inputs from other shapes. It returns
        what it knows of inputs by name, and of the output as "out"."""
        self.__dict__["input_rule"] = rule
        return rule

    def written_in_mxnet(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Attach what says the same in MXNet's ops, for an op that MXNet does not have: a function
        of values `(*inputs, **attributes)`, like a gradient rule. MXNetError where there is no way
        to say a call."""
        self.__dict__["mxnet_rule"] = rule
        return rule
