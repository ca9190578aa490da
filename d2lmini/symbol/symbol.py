"""Symbol: a description of a computation that has not run yet.

A Symbol is one output of a node, or a group of several. It has the operators and methods of
NDArray, which return a Symbol of a larger graph.

>>> from d2lmini import nd, sym
>>> a, b = sym.var("a"), sym.var("b")
>>> with sym.NameManager():
...     c = a * b + 2
>>> c, c.list_arguments()
(<Symbol _plusscalar0>, ['a', 'b'])
>>> c.eval(a=nd.ones(3), b=nd.arange(3))[0]
<BLANKLINE>
[2. 3. 4.]
<NDArray 3 @cpu(0)>

As in MXNet, the operators and functions of two Symbols take them to have one shape, so that the
shape of one tells that of the other: `a + b` is `elemwise_add(a, b)`. In a typed graph, where the
shapes are known, they broadcast, as they do for arrays. A Symbol has no contents; what needs them
is refused. After `mxnet.symbol.Symbol`.

>>> if a > 0: ...
Traceback (most recent call last):
d2lmini.symbol.symbol.NotImplementedForSymbol: bool is not implemented for Symbol and only ...

Plain `forward` methods and gradient rules work on `Traced` values, Symbols of a typed graph:

>>> from d2lmini.ops.core import Spec
>>> x = Traced(((Node(None, "x", specs=(Spec((4, 3), "float32"),)), 0),))
>>> x[1:3].shape, x[:, None, 0].shape, x[..., ::2].shape
((2, 3), (4, 1), (4, 2))
>>> [row.shape for row in x]
[(3,), (3,), (3,), (3,)]

`x[key]` is one node, with the same rules as for arrays: numbers, slices, None and `...` are
attributes of the node. A list or NumPy array of integers becomes a constant input, so it is allowed
only where arrays are: in a compiled `forward`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from d2lmini import addons
from d2lmini.base import MXNetError, callsite, explain_left_out
from d2lmini.context import Context, current_context
from d2lmini.graph.ir import Entry, Node, spec_of, topological, variables_of
from d2lmini.ndarray.indexing import is_whole, parse, select
from d2lmini.ndarray.plan import plan_of
from d2lmini.ops.core import Op, Spec, Value, invoke, modes, registry
from d2lmini.ops.fluent import Fluent, Typed
from d2lmini.symbol import naming
from d2lmini.symbol.naming import AttrScope, NameManager, labels_of, operator_hint, output_name


class NotImplementedForSymbol(MXNetError, NotImplementedError):
    """An operation on a Symbol needs contents, which a Symbol does not have. The message for a net
    that is traced names the user's line."""

    def __init__(self, what: str):
        where = "" if modes.tracing is None else f"\n  at {callsite.describe(callsite.find())}"
        super().__init__(
            f"{what} is not implemented for Symbol and only available in NDArray: when a net is "
            "hybridized its code runs once, on Symbols that have no contents yet. Compute with "
            "operators, or F.where for a choice by value; do what needs the contents outside of "
            "the net, or run it imperatively with net.hybridize(False)" + where
        )


#: What a Symbol does not know, and what the error says of it.
_FACTS = ("shape", "dtype", "size", "ndim", "context", "ctx")
_UNKNOWN = (
    ": what it is like is not known before it runs. In hybrid_forward use operations that adapt "
    "(reshape codes 0 and -1, F.shape_array, F.zeros_like), or write a plain `forward(self, x)`, "
    "which sees shapes also when it is compiled"
)


class Symbol(Fluent):
    """An output of a node, or a group of outputs; made by `sym.var` and by operations."""

    __slots__ = ("_entries", "__weakref__")

    _entries: tuple[Entry, ...]

    # NumPy arrays on the left of an operator leave the operation to Symbol.
    __array_priority__ = 1000.0

    def __init__(self, entries: tuple[Entry, ...]):
        self._entries = entries

    @staticmethod
    def _apply(op: Op, inputs: tuple, attrs: dict[str, Any], out: Any = None) -> Symbol:
        """Make a node of `op` on Symbols; operators, methods and gradient rules all call this."""
        if out is not None and out is not inputs[0]:  # x += 1 makes a new Symbol under the old name
            raise MXNetError(f"{op.name}: out= is not supported for Symbols; use the result")
        name = NameManager.current.get(None, operator_hint(op.name))
        symbols = [x for x in inputs if isinstance(x, Symbol)]
        if op.broadcasts and any(x._entry[0].specs is None for x in symbols):
            op = op.family.equal
        result = apply_op(op, inputs, attrs, name)
        if out is None or modes.tracing is None:
            return result
        return modes.tracing.overwritten(out, result)

    @property
    def _entry(self) -> Entry:
        """The Symbol's single output; MXNetError for a group."""
        if len(self._entries) != 1:
            raise MXNetError(
                f"{self!r} has {len(self._entries)} outputs and one is needed here; choose one "
                "with s[i] or s['name_output']"
            )
        return self._entries[0]

    @property
    def name(self) -> str | None:
        """The name of the node; None for a group of several nodes."""
        nodes = {node for node, _ in self._entries}
        return nodes.pop().name if len(nodes) == 1 else None

    def __repr__(self) -> str:
        shown = self.name or f"group [{', '.join(node.name for node, _ in self._entries)}]"
        return f"<{type(self).__name__} {shown}>"

    def __hash__(self) -> int:
        return id(self) // 16

    def __copy__(self, memo: Any = None) -> Symbol:
        return type(self)(self._entries)

    __deepcopy__ = __copy__

    def __neg__(self) -> Any:
        return invoke(registry["_mul_scalar"], (self,), {"scalar": -1.0}, None)

    def as_nd_ndarray(self) -> Symbol:
        """The Symbol itself: there is no other interface here."""
        return self

    # -- variables and parts -----------------------------------------------------------------------

    def list_arguments(self) -> list[str]:
        """Names of the variables except auxiliary states, in depth-first order: left inputs
        first."""
        return [node.name for node in naming.variables(self._entries)[0]]

    def list_auxiliary_states(self) -> list[str]:
        """Names of the variables that ops mutate: BatchNorm's moving mean and variance."""
        return [node.name for node in naming.variables(self._entries)[1]]

    def list_inputs(self) -> list[str]:
        """Names of all variables."""
        return [node.name for node in variables_of(self._entries)]

    def get_internals(self) -> Symbol:
        """All outputs of all nodes as a group: `s.get_internals()['fc1_output']`."""
        nodes = topological(self._entries)
        return type(self)(tuple([(node, i) for node in nodes for i in range(node.n_outputs)]))

    def get_children(self) -> Symbol | None:
        """The inputs of the Symbol's nodes as a group; None if there are none."""
        nodes = dict.fromkeys(node for node, _ in self._entries)
        entries = tuple([entry for node in nodes for entry in node.sources])
        return type(self)(entries) if entries else None

    def __call__(self, *args: Symbol, name: str | None = None, **kwargs: Symbol) -> Symbol:
        """The same computation with other Symbols in place of some variables: by name, or by
        position for the first variables. name: the new name of the first node.

        TypeError for an argument that is not a Symbol with one output; MXNetError for a name that
        is not a variable."""
        if args and kwargs:
            raise TypeError("give the Symbols by position or by name, not both")
        variables = variables_of(self._entries)
        names = [node.name for node in variables]
        if len(args) > len(names):
            raise TypeError(f"{len(args)} Symbols for {len(names)} variables: {names}")
        given: dict[str, Any] = {**dict(zip(names, args)), **kwargs}
        for key, value in given.items():
            if not isinstance(value, Symbol):
                raise TypeError(f"{key}: expected a Symbol, got {type(value).__name__}")
            if key not in names:
                raise MXNetError(f"there is no variable {key!r} in {self!r}; it has {names}")
        entries = {node: given[node.name]._entry for node in variables if node.name in given}
        return type(self)(naming.substitute(self._entries, entries, name))

    # -- attributes --------------------------------------------------------------------------------

    def attr(self, key: str) -> str | None:
        """The attribute or label `key` of the first node as a string, for 'name' its name; None if
        absent."""
        return self._entries[0][0].name if key == "name" else self.list_attr().get(key)

    def list_attr(self) -> dict[str, str]:
        """All attributes and labels of the first node."""
        return naming.attributes(self._entries[0][0])

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """Attributes and labels of all nodes that have any, by node name."""
        found = {n.name: naming.attributes(n) for n in topological(self._entries)}
        return {name: attributes for name, attributes in found.items() if attributes}

    # -- outputs -----------------------------------------------------------------------------------

    def list_outputs(self) -> list[str]:
        """Names of the outputs: 'dot0_output', of several 'split0_output0', ..."""
        return [output_name(entry) for entry in self._entries]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Symbol]:
        return (type(self)((entry,)) for entry in self._entries)

    def __getitem__(self, key: int | slice | str) -> Symbol:
        """Outputs by number, slice or name. IndexError, for a slice TypeError, for a name
        ValueError if there is none."""
        if isinstance(key, str):
            names = self.list_outputs()
            if names.count(key) != 1:
                raise ValueError(f"{names.count(key)} outputs are named {key!r}: {names}")
            key = names.index(key)
        if isinstance(key, int):
            if not -len(self._entries) <= key < len(self._entries):
                raise IndexError(f"output {key} of {len(self._entries)}")
            return type(self)((self._entries[key],))
        if not isinstance(key, slice) or not self._entries[key]:
            raise TypeError(f"{key!r} selects none of {len(self._entries)} outputs")
        return type(self)(self._entries[key])

    # Called only for missing attributes.
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("bind", "simple_bind", "_bind", "_simple_bind"):
            addons.find("Symbol.bind")  # it adds them to the class
            return getattr(self, name)
        if name == "_chunk":  # the memory: the caller expects an array
            raise NotImplementedForSymbol(
                "being written into an array, or used without operations,"
            )
        kind = type(self).__name__
        raise AttributeError(
            explain_left_out(f"{kind}.{name}")
            or f"{kind!r} object has no attribute {name!r}{_UNKNOWN if name in _FACTS else ''}"
        )

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise NotImplementedForSymbol("x[...] = value")


def _refuse(what: str) -> Callable[..., NoReturn]:
    """A method that raises NotImplementedForSymbol."""

    def method(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedForSymbol(what)

    method.__doc__ = "Refused: a Symbol has no contents yet."
    return method


for _name in """
    asnumpy asscalar item tolist wait_to_read wait_to_write backward attach_grad as_in_context
    copyto __bool__ __float__ __int__ __index__""".split():
    setattr(Symbol, _name, _refuse(_name.strip("_")))
del _name


def apply_op(
    op: Op, inputs: tuple, attrs: dict[str, Any], name: str,
    labels: Mapping[str, str] | None = None, given: Mapping[str, str] | None = None,
) -> Any:  # fmt: skip
    """A new node of `op` on these Symbols (None: omitted), as a Symbol of its visible outputs. In a
    typed graph shapes and dtypes are checked here. given: the attributes that the user gave, as
    text. TypeError for an array, except while a plain `forward` is traced."""
    if modes.casting is not None:
        inputs = modes.casting(op, inputs, attrs)
    if isinstance(attrs.get("scalar"), np.generic):  # x * np.float32(2): convert to a plain number
        attrs = {**attrs, "scalar": attrs["scalar"].item()}
    kinds = [type(x) for x in inputs if isinstance(x, Symbol) and type(x) is not Symbol]
    entries: list[Entry | None] = []
    for x in inputs:
        if x is None:
            entries.append(None)
        elif isinstance(x, Symbol):
            # A variadic op takes each member of a group as an input.
            entries.extend(x._entries) if op.variadic else entries.append(x._entry)
        elif modes.tracing is not None and isinstance(x, Value):
            entries.append(modes.tracing.capture(x))
        else:
            raise TypeError(
                f"{op.name}: expected Symbols, got {type(x).__name__}; make a variable with "
                "sym.var('name') and give the array when the graph runs"
            )
    if modes.tracing is not None:
        modes.tracing.note_view(op, entries)
    specs = _specs(op, entries, attrs)
    if op.random and modes.tracing is not None:
        attrs = {**attrs, "rng": modes.tracing.note_draw(op, attrs)}
    if specs is not None and "training" in op.injects:
        attrs = {"training": modes.training, **attrs}
    labels = labels_of(AttrScope.current.get(labels))
    node = Node(op, name, tuple(entries), attrs, specs, labels, callsite.find(), given or {})
    kind = kinds[-1] if kinds else Symbol
    return kind(tuple((node, i) for i in range(node.n_outputs)))


def _specs(op: Op, entries: list[Entry | None], attrs: dict[str, Any]) -> Any:
    """Specs of the outputs, if the specs of all inputs are known."""
    given = [entry for entry in entries if entry is not None]
    if is_open(op, attrs) or any(node.specs is None for node, _ in given):
        return None
    return plan_of(op, [spec_of(entry) for entry in given], attrs).outputs


def is_open(op: Op, attrs: dict[str, Any]) -> bool:
    """Whether what uses the result determines its shape: of zeros and the like with a size below 1
    (as in MXNet, 0 and -1 are unknown), of random numbers without a shape."""
    shape = attrs.get("shape") if op.arity == 0 else None
    return shape is not None and min(shape, default=0 if op.random else 1) < 1


# -- values of typed graphs ------------------------------------------------------------------------


class Traced(Typed, Symbol):
    """A Symbol of a typed graph that works like an array without contents."""

    __slots__ = ()

    @property
    def _spec(self) -> Spec:  # type: ignore[override]
        return spec_of(self._entry)

    @property
    def context(self) -> Context:
        """The device that the graph is traced for."""
        return (modes.tracing and modes.tracing.ctx) or current_context()

    ctx = context

    def __len__(self) -> int:
        """Size of the first axis; for a group, the number of outputs."""
        return super().__len__() if len(self._entries) == 1 else len(self._entries)

    def __getitem__(self, key: Any) -> Symbol:
        """Elements, as for an array; for a group, outputs by number, slice or name."""
        if len(self._entries) > 1:
            return super().__getitem__(key)
        if key is Ellipsis or is_whole(key):
            return self
        return select(self, parse(key, self.shape, self.is_np))

    def as_in_context(self, context: Context) -> Any:
        """The value itself: a compiled graph has one device. MXNetError for another context."""
        if context != self.context:
            raise MXNetError(
                f"as_in_context: a compiled net runs on one device, here {self.context}, and "
                f"cannot move a value to {context}; move the inputs, or run it with "
                "net.hybridize(False)"
            )
        return self

    as_in_ctx = as_in_context
