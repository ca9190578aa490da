"""Symbol: a computation that is written down and not yet done.

A Symbol is one output of a node, or a group of several. Operators and methods are those of NDArray;
what they return is a Symbol of a larger graph.

>>> from d2lmini import nd, sym
>>> a, b = sym.var("a"), sym.var("b")
>>> c = a * b + 2
>>> c, c.list_arguments()
(<Symbol _plusscalar0>, ['a', 'b'])
>>> c.eval(a=nd.ones(3), b=nd.arange(3))[0]
<BLANKLINE>
[2. 3. 4.]
<NDArray 3 @cpu(0)>

A *traced* value (`Traced`) is a Symbol of a typed graph that behaves like an array whose contents
are not known: it has a shape, `x[1:3]` takes elements. Plain `forward` methods and gradient rules
see it. After `mxnet.symbol.Symbol`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NoReturn

from d2lmini import callsite
from d2lmini.base import MXNetError
from d2lmini.ndarray.plan import plan_of
from d2lmini.ops.core import Op, Spec, Value, modes, registry
from d2lmini.ops.fluent import Fluent
from d2lmini.symbol.attribute import AttrScope
from d2lmini.symbol.naming import NameManager
from d2lmini.symbol.node import Draw, Entry, Node


class Symbol(Fluent):
    """An output of a node, or a group of outputs; made by `sym.var` and by operations."""

    __slots__ = ("_entries", "__weakref__")

    _entries: tuple[Entry, ...]

    # NumPy arrays on the left of an operator leave the operation to us.
    __array_priority__ = 1000.0

    def __init__(self, entries: tuple[Entry, ...]):
        self._entries = entries

    @staticmethod
    def _apply(op: Op, inputs: tuple, attrs: dict[str, Any], out: Any) -> Symbol:
        """Write down `op` on Symbols; the road of operators, methods and gradient rules."""
        if out is not None and out is not inputs[0]:  # x += 1 makes a new Symbol under the old name
            raise MXNetError(f"{op.name}: out= has no meaning for Symbols; use what is returned")
        return written(op, inputs, attrs)

    @property
    def _entry(self) -> Entry:
        """Its one output; MXNetError if it is a group."""
        if len(self._entries) != 1:
            raise MXNetError(
                f"{self!r} has {len(self._entries)} outputs and one is needed here; choose one "
                "with s[i] or s['name_output']"
            )
        return self._entries[0]

    @property
    def name(self) -> str | None:
        """The name of its node; None for a group of several nodes."""
        nodes = {node for node, _ in self._entries}
        return nodes.pop().name if len(nodes) == 1 else None

    def __repr__(self) -> str:
        name = self.name
        if name is None:
            return f"<{type(self).__name__} group [{', '.join(self.list_outputs())}]>"
        return f"<{type(self).__name__} {name}>"

    def __hash__(self) -> int:
        return id(self) // 16

    def __copy__(self) -> Symbol:
        return type(self)(self._entries)

    def __deepcopy__(self, memo: dict) -> Symbol:
        return type(self)(self._entries)

    # -- methods that arrays write by hand ----------------------------------------------------------

    def reshape(self, *shape: Any, reverse: bool = False, **kwargs: Any) -> Any:
        """Another shape: `reshape(2, 3)` or `reshape((2, 3))`, with MXNet's codes."""
        target = shape or kwargs.pop("shape", None)
        if target is None:
            raise TypeError("reshape: takes a shape")
        if len(target) == 1 and isinstance(target[0], (tuple, list)):
            target = target[0]
        return registry["reshape"](self, shape=tuple(target), reverse=reverse, **kwargs)

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """Converted to `dtype`."""
        return registry["Cast"](self, dtype=dtype)

    def copy(self) -> Any:
        """A copy."""
        return registry["_copy"](self)

    # -- outputs -----------------------------------------------------------------------------------

    def list_outputs(self) -> list[str]:
        """Names of its outputs: 'dot0_output', of several 'split0_output0', ..."""
        return [output_name(entry) for entry in self._entries]

    @property
    def num_outputs(self) -> int:
        """How many outputs it has."""
        return len(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Symbol]:
        return (type(self)((entry,)) for entry in self._entries)

    def __getitem__(self, key: int | slice | str) -> Symbol:
        """Outputs by number, slice or name; IndexError or ValueError when there is no such one."""
        if isinstance(key, str):
            names = self.list_outputs()
            found = [i for i, name in enumerate(names) if name == key]
            if not found:
                raise ValueError(f"there is no output {key!r} in {names}")
            if len(found) > 1:
                raise ValueError(f"there are {len(found)} outputs named {key!r}")
            key = found[0]
        if isinstance(key, slice):
            return type(self)(self._entries[key])
        if not isinstance(key, int):
            raise TypeError(f"outputs are chosen by number, slice or name, got {key!r}")
        if not -len(self._entries) <= key < len(self._entries):
            raise IndexError(f"output {key} of {len(self._entries)}")
        return type(self)((self._entries[key],))

    # Reached only by names that are not there.
    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(_explain(type(self).__name__, name))

    def __bool__(self) -> NoReturn:
        raise NotImplementedForSymbol("bool")

    def __float__(self) -> NoReturn:
        raise NotImplementedForSymbol("float")

    def __int__(self) -> NoReturn:
        raise NotImplementedForSymbol("int")

    def __index__(self) -> NoReturn:
        raise NotImplementedForSymbol("index")

    def asnumpy(self) -> NoReturn:
        """Refused: a Symbol has no contents yet."""
        raise NotImplementedForSymbol("asnumpy")

    def asscalar(self) -> NoReturn:
        """Refused: a Symbol has no contents yet."""
        raise NotImplementedForSymbol("asscalar")

    def item(self) -> NoReturn:
        """Refused: a Symbol has no contents yet."""
        raise NotImplementedForSymbol("item")

    def wait_to_read(self) -> NoReturn:
        """Refused: there is nothing to wait for yet."""
        raise NotImplementedForSymbol("wait_to_read")

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise NotImplementedForSymbol("x[...] = value")


class NotImplementedForSymbol(MXNetError, NotImplementedError):
    """Something that needs contents was asked of a Symbol."""

    def __init__(self, what: str):
        super().__init__(
            f"{what} is not implemented for Symbol and only available in NDArray: when a net is "
            "hybridized its code runs once, on Symbols that have no contents yet. Compute with "
            "operators, or F.where for a choice by value; do what needs the contents outside of "
            "the net, or run it imperatively with net.hybridize(False)"
        )


def _explain(kind: str, name: str) -> str:
    hint = ""
    if name in ("shape", "dtype", "size", "ndim", "context", "ctx"):
        hint = (
            ": what it is like is not known before it runs. In hybrid_forward use operations that "
            "adapt (reshape codes 0 and -1, F.shape_array, F.zeros_like), or write a plain "
            "`forward(self, x)`, which sees shapes also when it is compiled"
        )
    return f"{kind!r} object has no attribute {name!r}{hint}"


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return registry[name](self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"`{registry[name].usage}`."
    return method


for _name in ("reshape_like", "expand_dims", "squeeze", "flatten"):
    setattr(Symbol, _name, _method(_name))
del _name


def written(
    op: Op,
    inputs: tuple,
    attrs: dict[str, Any],
    name: str | None = None,
    labels: dict[str, str] | None = None,
    named: bool = False,
) -> Any:
    """A new node of `op` on these Symbols (None: left out), as a Symbol of the outputs it shows. In
    a typed graph shapes and dtypes are checked here. `named`: the name needs no prefix any more."""
    kind: type[Symbol] = Symbol
    entries: list[Entry | None] = []
    for x in inputs:
        if x is None:
            entries.append(None)
        elif isinstance(x, Symbol):
            if type(x) is not Symbol:
                kind = type(x)
            # A group is as many inputs where any number may come.
            entries.extend(x._entries) if op.variadic else entries.append(x._entry)
        else:
            entries.append(captured(op, x))
    specs = _specs(op, entries, attrs)
    if specs is not None and op.injects:
        attrs = dict(attrs)
        if "training" in op.injects:
            attrs.setdefault("training", modes.training)
        if op.random:
            attrs.setdefault("rng", Draw(next(_order)))
    node = Node(
        op,
        name if named and name else NameManager.current.get(name, op_hint(op)),
        tuple(entries),
        attrs,
        specs,
        AttrScope.current.get(labels),
        callsite.find(),
    )
    return kind(tuple((node, i) for i in range(node.n_outputs)))


#: Numbers for random keys in the order in which nodes are written: `typed` keeps it.
_order = count()


def op_hint(op: Op) -> str:
    """What nodes of an op are called before their number: its name in small letters; '_plusscalar'
    for `_plus_scalar` and its like, as in MXNet."""
    name = op.name
    if name.startswith("_") and name.endswith("_scalar"):
        name = "_" + name.replace("_", "")
    return name.lower()


def captured(op: Op, x: Any) -> Entry:
    """An array among Symbols: allowed while a plain `forward` is traced, see `graph.trace`."""
    if tracer.capture is not None and isinstance(x, Value):
        return tracer.capture(x)
    raise TypeError(
        f"{op.name}: expected Symbols, got {type(x).__name__}; make a variable with "
        "sym.var('name') and give the array when the graph runs"
    )


class _Tracer(threading.local):
    """Per thread: what stands for an array in the graph that is being traced; None outside."""

    capture: Callable[[Any], Entry] | None = None


tracer = _Tracer()


def _specs(op: Op, entries: list[Entry | None], attrs: dict[str, Any]) -> Any:
    """Specs of the outputs, if those of all inputs are known."""
    specs = []
    for entry in entries:
        if entry is not None:
            known = entry[0].specs
            if known is None:
                return None
            specs.append(known[entry[1]])
    return plan_of(op, specs, attrs).outputs if specs else None


class Traced(Symbol):
    """A Symbol of a typed graph that can be used like an array without contents."""

    __slots__ = ()

    @property
    def _spec(self) -> Spec:
        node, i = self._entry
        assert node.specs is not None
        return node.specs[i]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self._spec.shape

    @property
    def dtype(self) -> type:
        """The NumPy type of the elements."""
        return self._spec.dtype.type

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._spec.size

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._spec.shape)

    @property
    def T(self) -> Symbol:
        """The axes reversed."""
        return self if self.ndim < 2 else written(registry["transpose"], (self,), {"axes": ()})
