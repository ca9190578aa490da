"""Tracing: a function of arrays is called once, with Symbols, and leaves its graph behind.

>>> from d2lmini import nd
>>> from d2lmini.graph.symbolic_trace import SymbolicTrace
>>> trace = SymbolicTrace(["x"], [nd.ones((2, 3))._spec], shaped=True)
>>> y = trace.run(lambda x: nd.dot(x, nd.ones((3, x.shape[1]))).relu())
>>> trace.symbol.list_arguments()
['x', 'array0']

Its inputs are variables whose shapes are known, so a wrong shape is an error at the line that makes
it. What else the function uses becomes a variable too: a parameter, which `parameter` knows by its
identity and whose arrays are looked up at each call, or an array, which is used by reference. All
Python in the function runs once, here; what is left are the operations.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import zip_longest
from typing import Any, NoReturn

from d2lmini.base import MXNetError, callsite, forks, loaders
from d2lmini.base.scopes import Undo, contextmanager, scope, swap
from d2lmini.context import Context
from d2lmini.engine import signals
from d2lmini.engine.scheduler import thread_state as engine_state
from d2lmini.graph.ir import Draw, Entry, Node, forget_call, transform
from d2lmini.ndarray.ndarray import NDArray
from d2lmini.ops import random_state
from d2lmini.ops.core import Op, Spec, modes
from d2lmini.symbol.symbol import Symbol, Traced

_DRAWN = (
    "random numbers that are drawn while a net is traced would be the same in every call of the "
    "compiled net: draw in the graph (F.random in hybrid_forward, nd.random.normal_like(x) and "
    "uniform_like(x) in forward), or outside of the net, as an input"
)


#: What arrays do without an op, by a view, is one of these in a graph.
VIEWS = frozenset(
    ["reshape", "_getitem", "slice", "slice_axis", "expand_dims", "squeeze", "flatten", "BlockGrad"]
)


class FallbackToEager(MXNetError):
    """Raised by a Block that is being traced and can only run as it is written, in this mode. The
    Blocks around it then do so too, each of which calls its children, compiled or not.

    site: the user's line that makes it so, who then is told once.
    """

    site: callsite.Site | None


_making = threading.RLock()
signals.locks.append(_making)
forks.at_fork(after_in_child=_making._at_fork_reinit)  # type: ignore[attr-defined]


def one_at_a_time() -> AbstractContextManager[Any]:
    """A scope for what a net does once, in whichever thread comes first: initialize its parameters,
    trace, compile. There is one for all nets, so no two can wait for each other.

    A task of the engine does not wait here, for who is inside may wait for the engine.
    """
    return nullcontext() if engine_state.task else _making


class SymbolicTrace:
    """One run of a function on Symbols, and what it left.

    inputs    a variable for each input, None for an input that is None
    ctx       where the arrays of the calls will be, if it is known
    uses      what else fills a variable: a parameter (anything with `data(ctx)`) or an array
    symbol    the outputs, each once, as one Symbol
    outputs   number in `symbol` of each value the function returned, flat; (value,) for what is no
              Symbol, which comes back as it was
    general   does the graph hold for other shapes and devices too? Not if the function could see
              shapes, or used an array
    refused   why there is no such graph after all; None if there is
    drawn     the calls of random ops in the order of the program, as (op, attributes); also those
              whose results are not used
    early     the keys of the first of these, where initial values were drawn after them
    is_np     the values behave like `np.ndarray`
    """

    def __init__(
        self, names: Sequence[str], specs: Sequence[Spec | None], shaped: bool, is_np: bool = False
    ):
        self.inputs = [
            None if spec is None else Node(None, name, specs=(spec,))
            for name, spec in zip(names, specs, strict=True)
        ]
        self.shaped = shaped or is_np
        self.is_np = is_np
        self.ctx: Context | None = None
        self.uses: dict[Node, Any] = {}
        self.symbol = Symbol(())
        self.outputs: list[int | tuple[Any]] = []
        self.refused: FallbackToEager | None = None
        self.drawn: list[tuple[Op, dict[str, Any]]] = []
        self.early: list[Any] = []
        self._variables: dict[int, Node] = {}
        self._viewed: set[Entry] = set()
        self._owners: dict[int, Any] | None = None
        self._owned: Callable[[], Any] = tuple

    @property
    def kind(self) -> type[Symbol]:
        """The class of the values that the function gets."""
        if self.is_np:
            return loaders["np.Traced"]()
        return Traced if self.shaped else Symbol

    @property
    def general(self) -> bool:
        return not self.shaped and not any(isinstance(x, NDArray) for x in self.uses.values())

    def run(
        self, function: Callable[..., Any], regroup: Any = None,
        owned: Callable[[], Any] = tuple, ctx: Context | None = None,
    ) -> Any:  # fmt: skip
        """Call the function on its inputs. regroup: makes its arguments of the flat inputs, if they
        are nested; owned: all parameters, to know an array that is one's; ctx: where its arrays
        will be, for those who ask.
        """
        flat = [None if node is None else self.kind(((node, 0),)) for node in self.inputs]
        args = flat if regroup is None else regroup(flat)
        before, modes.tracing = modes.tracing, self
        self.ctx, self._owned = ctx, owned
        limit = sys.getrecursionlimit()
        try:
            # A call of a Block takes more frames here than eagerly, where nets may be as deep.
            sys.setrecursionlimit(2 * limit)
            with random_state.refusing(_DRAWN):
                result = self._keep(function(*args))
            if self.refused is not None:  # and the function has caught that
                raise self.refused
            return result
        except Exception:
            if self.refused is not None:
                raise self.refused from None
            raise
        finally:
            sys.setrecursionlimit(limit)
            modes.tracing = before
            self._owned, self._owners = tuple, None

    def refuse(self, what: str) -> NoReturn:
        """The function does what no graph can do: raise FallbackToEager."""
        self.refused = FallbackToEager(what)
        self.refused.site = callsite.find()
        raise self.refused

    def depends_on_mode(self) -> None:
        """What the function does depends on whether it is called in training mode."""
        self.shaped = True

    def note_view(self, op: Op, inputs: Sequence[Entry | None]) -> None:
        """An op is written down: on arrays its result may be a view of its input."""
        if op.name in VIEWS:
            self._viewed.update(entry for entry in inputs if entry is not None)

    def note_draw(self, op: Op, attrs: dict[str, Any]) -> Draw:
        """A call of a random op is written down."""
        self.drawn.append((op, attrs))
        return Draw(len(self.drawn) - 1)

    def draws(self, training: bool) -> Sequence[bool]:
        """Whether each of these calls draws in this mode; () if none does."""
        draws = [op.draws(**{**attrs, "training": training}) for op, attrs in self.drawn]
        return draws if any(draws) else ()

    def keys(self, draws: Sequence[bool], ctx: Context | None) -> list[Any]:
        """The keys for a call of the graph, None where nothing is drawn."""
        early, self.early = self.early, []
        taken = zip_longest(draws, early[: len(draws)])
        return [(key or random_state.next_key(ctx)) if draw else None for draw, key in taken]

    def overwritten(self, value: Symbol, by: Symbol) -> Symbol:
        """`value += 1` and the like: every name of the value shows the result.
        FallbackToEager where memory that others see would change: of an input, of what has a view
        or is one."""
        entry = value._entry
        op = entry[0].op
        if op is None or op.name in VIEWS or entry in self._viewed:
            self.refuse("x += y, or the like, of an input, of a view, or of what has a view,")
        value._entries = by._entries
        return value

    def _keep(self, result: Any) -> Any:
        """Note the outputs among what was returned."""
        found: dict[Entry, int] = {}

        def note(value: Any) -> None:
            if isinstance(value, (list, tuple)):
                for item in value:
                    note(item)
            elif isinstance(value, Symbol):
                for entry in value._entries:
                    self.outputs.append(found.setdefault(entry, len(found)))
            elif isinstance(value, NDArray):
                entry = self.capture(value)
                self.outputs.append(found.setdefault(entry, len(found)))
            else:
                self.outputs.append((value,))

        note(result)
        self.symbol = Symbol(tuple(found))
        return result

    def parameter(self, parameter: Any, spec: Spec, labels: Mapping[str, str]) -> Symbol:
        """The variable that stands for a parameter here."""
        return self.kind((self._variable(parameter, parameter.name, spec, labels=labels),))

    def _variable(self, use: Any, name: str, spec: Spec, **how: Any) -> Entry:
        """The variable that a parameter or an array fills."""
        node = self._variables.get(id(use))
        if node is None:
            node = self._variables[id(use)] = Node(None, name, specs=(spec,), **how)
            self.uses[node] = use
        return node, 0

    def stands_for(self, array: Any) -> Symbol:
        """The Symbol of an array that the function got from elsewhere."""
        return self.kind((self.capture(array),))

    def with_shape(self, value: Any) -> Any:
        """A Symbol or array of this trace as a value with a shape."""
        if isinstance(value, NDArray):
            value = Symbol((self.capture(value),))
        kind = self.kind if self.is_np else Traced
        return kind(value._entries) if isinstance(value, Symbol) else value

    def capture(self, array: Any) -> Entry:
        """What stands for an array that the function got from elsewhere."""
        if self._owners is None:
            self._owners = {id(a): p for p in self._owned() for a in p._data or ()}
        owner = self._owners.get(id(array))
        if owner is not None:
            return owner.var()._entry
        number = sum(isinstance(use, NDArray) for use in self.uses.values())
        return self._variable(array, f"array{number}", array._spec, site=callsite.find())


def input_names(n: int) -> list[str]:
    """What the inputs of a net are called in its graph, after MXNet's."""
    return ["data"] if n == 1 else [f"data{i}" for i in range(n)]


@scope
def outside(undo: Undo) -> None:
    """A scope in which nothing is traced."""
    swap(undo, modes, "tracing", None)
    swap(undo, random_state._thread_state, "part", None)


@contextmanager
def initializing() -> Iterator[None]:
    """A scope for initial values that are made while a net is traced: they are drawn once, outside
    of the trace, with the keys of an eager run. What the trace drew before draws its keys first."""
    trace = modes.tracing
    with one_at_a_time(), outside():
        if trace is not None:
            trace.early = trace.keys(trace.draws(modes.training), trace.ctx)
        yield


def plain(symbol: Symbol) -> Symbol:
    """The same graph without what belongs to one call: shapes, mode, random keys."""
    return Symbol(tuple(transform(symbol._entries, forget_call)))
