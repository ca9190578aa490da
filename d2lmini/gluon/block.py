"""Block: a part of a network, which owns parameters and child Blocks.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> class Net(nn.Block):
...     def __init__(self, **kwargs):
...         super().__init__(**kwargs)
...         self.hidden = nn.Dense(4, activation="relu")     # a Block as attribute becomes a child
...         self.output = nn.Dense(2)
...     def forward(self, x):
...         return self.output(self.hidden(x))
>>> net = Net()
>>> net.initialize()
>>> net(nd.ones((5, 3))).shape
(5, 2)
>>> net
Net(
  (hidden): Dense(3 -> 4, Activation(relu))
  (output): Dense(4 -> 2, linear)
)

A subclass creates its layers in `__init__` and computes in `forward`. `__setattr__` records
parameters in `_reg_params` and child Blocks in `_children`. Operations on the whole net
(initialize, cast, save, ...) traverse these two dicts. After `mxnet.gluon.block`.

The names of Blocks are 'dense0', 'dense1', ... and, inside a `name_scope`, 'net0_dense0':

>>> net = nn.Sequential(prefix="net_")
>>> with net.name_scope():
...     net.add(nn.Dense(3), nn.Dense(2))
>>> [layer.name for layer in net]
['net_dense0', 'net_dense1']

Each Block numbers the layers of each kind made in its scope. Outside any scope the thread's
`NameManager` numbers them; it also names the nodes of graphs. Nodes made in the scope of a Block
get the Block's prefix.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from d2lmini import ndarray as nd
from d2lmini.base import LeftOut, callsite
from d2lmini.base.scopes import Scope, Undo, swap
from d2lmini.gluon.compiled import flatten as _flatten
from d2lmini.gluon.compiled import regroup as _regroup
from d2lmini.gluon.parameter import Contexts, Parameter
from d2lmini.gluon.parameter_dict import FileName, ParameterDict, bare_name, load_named, load_values
from d2lmini.gluon.utils import HookHandle
from d2lmini.symbol.naming import NameManager, Prefix, next_name

__all__ = ["Block", "_BlockScope", "_flatten", "_regroup"]


class _ThreadState(threading.local):
    """Per thread: the innermost scope."""

    scope: _BlockScope | None = None


_thread_state = _ThreadState()


class _BlockScope(Scope):
    """`with block.name_scope():` names the Blocks made inside as children of `block`."""

    def __init__(self, block: Any):
        self._block = block
        self._counter = block.__dict__.setdefault("_names_used", {})

    @staticmethod
    def create(prefix: str | None, params: Any, hint: str) -> tuple[str, ParameterDict]:
        """The prefix and parameters of a new Block of kind `hint` in the current scope."""
        scope = _thread_state.scope
        if prefix is None:
            if scope is None:
                prefix = NameManager.current.get(None, hint) + "_"
            else:
                prefix = next_name(scope._counter, hint) + "_"
        if params is not None:
            params = ParameterDict(params.prefix, params)
        elif scope is None:
            params = ParameterDict(prefix)
        else:
            outer = scope._block.params
            params = ParameterDict(outer.prefix + prefix, outer._shared)
        return (prefix if scope is None else scope._block.prefix + prefix), params

    def _begin(self, undo: Undo) -> _BlockScope:
        # A Block with an empty prefix leaves the naming to the enclosing scope.
        if not self._block._empty_prefix:
            swap(undo, _thread_state, "scope", self)
            Prefix(self._block.prefix)._begin(undo)
        return self


class Block:
    """Base class of layers and networks.

    prefix: the beginning of all parameter names, by default the class name and a number, as in
    'dense0_'; with '' the enclosing name scope names the children. params: the `params` of another
    Block of the same class, whose parameters are then shared.
    """

    # Defaults for an object whose __init__ has not run (yet).
    _parent: Any = None  # (weak reference to the parent Block, name in the parent)

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None):
        self._empty_prefix = prefix == ""
        self._prefix, self._params = _BlockScope.create(prefix, params, self._alias())
        self._name = self._prefix.removesuffix("_")
        self._names_used: dict[str, int] = {}  # in the name_scope: how many, by kind
        self._children: OrderedDict[str, Block] = OrderedDict()
        self._reg_params: dict[str, Parameter] = {}
        self._forward_hooks: OrderedDict[int, Callable] = OrderedDict()
        self._forward_pre_hooks: OrderedDict[int, Callable] = OrderedDict()

    # -- what it is made of ------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute: register a child Block or a Parameter. Raises TypeError when the new
        value of a Block or Parameter has another type."""
        before = getattr(self, name, None)
        if isinstance(before, (Parameter, Block)) and not isinstance(value, type(before)):
            raise TypeError(
                f"Changing attribute type for {name} from {type(before)} to {type(value)} "
                "is not allowed."
            )
        if isinstance(value, (Block, Parameter)):
            if "_children" not in self.__dict__:
                raise AttributeError(
                    f"{type(self).__name__}: call super().__init__() before setting {name!r}"
                )
            if isinstance(value, Block):
                self.register_child(value, name)
            else:
                assert name not in self._reg_params, (
                    f"Overriding Parameter attribute {name} is not allowed. If you want to share "
                    "parameters between blocks, please set 'params' at Block construction instead."
                )
                self._reg_params[name] = value
                value._owner = (weakref.ref(self), name)
                self._clear_cached_op()
        super().__setattr__(name, value)

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Make `block` a child, by default named by its number. Setting attributes does this."""
        if not isinstance(block, Block):
            raise TypeError(f"{type(self).__name__}: a child must be a Block, got {block!r}")
        name = str(len(self._children)) if name is None else name
        self._children[name] = block
        block._parent = (weakref.ref(self), name)
        self._clear_cached_op()

    def __getstate__(self) -> dict:
        return {k: v for k, v in self.__dict__.items() if k != "_parent"}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        for name, child in self._children.items():
            child._parent = (weakref.ref(self), name)
        for name, parameter in self._reg_params.items():
            parameter._owner = (weakref.ref(self), name)

    def _path_to(self, name: str) -> str:
        """The path of attribute `name` in the whole net: 'features.0.weight of Net'."""
        block = self
        while block._parent is not None:
            outer = block._parent[0]()
            if outer is None:
                break
            name = f"{block._parent[1]}.{name}"
            block = outer
        return f"{name} of {type(block).__name__}"

    def _repr_children(self) -> dict[str, Block]:
        """The children that `repr` shows."""
        return {name: x for name, x in self.__dict__.items() if isinstance(x, Block)}

    def __repr__(self) -> str:
        children = [
            f"\n  ({name}): " + repr(block).replace("\n", "\n  ")
            for name, block in self._repr_children().items()
        ]
        return f"{type(self).__name__}(" + "".join(children or ["\n"]) + "\n)"

    # -- names -------------------------------------------------------------------------------------

    def _alias(self) -> str:
        """The kind in generated names, before the number."""
        return type(self).__name__.lower()

    @property
    def prefix(self) -> str:
        """The beginning of the names of all parameters."""
        return self._prefix

    @property
    def name(self) -> str:
        """The prefix without the final '_'."""
        return self._name

    def name_scope(self) -> _BlockScope:
        """A scope in which the names of new Blocks begin with the prefix of this Block."""
        return _BlockScope(self)

    _scope = property(name_scope)

    @property
    def params(self) -> ParameterDict:
        """The Block's own parameters, without the children's; `self.params.get(...)` makes one."""
        return self._params

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """The parameters of this Block and all its descendants. `select` keeps the parameters whose
        full names match a regular expression from the start, as in '.*weight|.*bias'."""
        self._check_container_with_block()
        found = ParameterDict(self._params.prefix)
        pattern = re.compile(select or "")
        found |= {k: p for k, p in self.params.items() if pattern.match(k)}
        for child in self._children.values():
            found.update(child.collect_params(select))
        return found

    def _check_container_with_block(self) -> None:
        """Warn about Blocks in a list, tuple or dict: they are not registered as children."""
        children = {id(child) for child in self._children.values()}

        def hides(x: Any) -> bool:
            items = x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else ()
            return any(id(y) not in children if isinstance(y, Block) else hides(y) for y in items)

        for name, value in self.__dict__.items():
            if name != "_children" and hides(value):
                callsite.warn(
                    f'"{type(self).__name__}.{name}" is an unregistered container with Blocks. '
                    "Note that Blocks inside the list, tuple or dict will not be registered "
                    "automatically. Make sure to register them using register_child() or switching "
                    "to nn.Sequential/nn.HybridSequential instead. "
                )

    def _collect_params_with_prefix(self, prefix: str = "") -> dict[str, Parameter]:
        """The parameters by their paths: 'features.0.weight'."""
        prefix = prefix and f"{prefix}."
        found = {prefix + name: p for name, p in self._reg_params.items()}
        for name, child in self._children.items():
            found |= child._collect_params_with_prefix(prefix + name)
        return found

    # -- calls -------------------------------------------------------------------------------------

    def __call__(self, *args: Any) -> Any:
        """Call `forward`, with the hooks before and after."""
        if self._forward_pre_hooks:
            self._run_hooks(self._forward_pre_hooks, args)
        # Nearly every call has one input; forward(args[0]) is a cheaper call than forward(*args).
        out = self.forward(args[0]) if len(args) == 1 else self.forward(*args)
        if self._forward_hooks:
            self._run_hooks(self._forward_hooks, args, out)
        return out

    def _run_hooks(self, hooks: dict[int, Callable[..., Any]], *given: Any) -> None:
        for hook in list(hooks.values()):
            hook(self, *given)

    def forward(self, *args: Any) -> Any:
        """Compute the output; a subclass defines this method."""
        raise NotImplementedError(
            f"{type(self).__name__} has no forward(); write `def forward(self, x): ...`"
        )

    def register_forward_pre_hook(self, hook: Callable[[Block, tuple], Any]) -> HookHandle:
        """Call `hook(block, inputs)` before each forward; `handle.detach()` removes it."""
        return HookHandle().attach(self._forward_pre_hooks, hook)

    def register_forward_hook(self, hook: Callable[[Block, tuple, Any], Any]) -> HookHandle:
        """Call `hook(block, inputs, output)` after each forward; the hook's result is ignored."""
        return HookHandle().attach(self._forward_hooks, hook)

    def apply(self, fn: Callable[[Block], Any]) -> Block:
        """Call `fn` on every descendant, children first, then on this Block; returns this Block."""
        for child in self._children.values():
            child.apply(fn)
        fn(self)
        return self

    # -- the whole net at once ---------------------------------------------------------------------

    def initialize(
        self, init: Any = None, ctx: Contexts = None, verbose: bool = False,
        force_reinit: bool = False,
    ) -> None:  # fmt: skip
        """Initialize all parameters in one context or a list of contexts, each with its own
        initializer, else with `init` (Uniform). See Parameter.initialize."""
        self.collect_params().initialize(init, ctx, verbose, force_reinit)

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridize all HybridBlocks among the descendants; see HybridBlock.hybridize."""
        for child in self._children.values():
            child.hybridize(active, **kwargs)
        self._clear_cached_op()

    def _clear_cached_op(self) -> None:
        """Make this Block and all enclosing Blocks drop their compiled programs."""
        block: Block | None = self
        while block is not None:
            block._drop_programs()
            block = block._parent and block._parent[0]()

    def _drop_programs(self) -> None:
        """A plain Block has none."""

    def cast(self, dtype: Any) -> None:
        """Convert all parameters to `dtype`."""
        for child in self._children.values():
            child.cast(dtype)
        for parameter in self.params.values():
            parameter.cast(dtype)
        self._clear_cached_op()

    def zero_grad(self) -> None:
        """Set all gradients to zeros, as `collect_params().zero_grad()` does."""
        self.collect_params().zero_grad()

    summary = LeftOut()
    register_op_hook = LeftOut()
    save = LeftOut()
    load = LeftOut()

    # -- files -------------------------------------------------------------------------------------

    def save_parameters(self, filename: FileName, deduplicate: bool = False) -> None:
        """Write all parameters by their paths ('0.weight'); waits for their values.

        Any net of the same structure can load the file, whatever its parameters' names.
        deduplicate: write a shared parameter once, not under each of its paths.
        """
        parameters = self._collect_params_with_prefix()
        if deduplicate:
            last = {id(p): name for name, p in parameters.items()}
            parameters = {n: p for n, p in parameters.items() if last[id(p)] == n}
        nd.save(filename, {name: p._reduce() for name, p in parameters.items()})

    def load_parameters(
        self, filename: FileName, ctx: Contexts = None, allow_missing: bool = False,
        ignore_extra: bool = False, cast_dtype: bool = False, dtype_source: str = "current",
    ) -> None:  # fmt: skip
        """Read parameters from a file written by `save_parameters`; needs no `initialize` before.

        Files of `collect_params().save`, `save_params` and `export` load too; they are recognized
        by their full names. ctx: the contexts for uninitialized parameters (cpu(0)). Raises
        AssertionError for a parameter missing from the file, unless allow_missing, and for a
        different shape, dtype (see cast_dtype in ParameterDict.load) or context; ValueError for a
        name that is not in the net, unless ignore_extra.
        """
        loaded = load_named(filename)
        parameters = self._collect_params_with_prefix()
        by_place = loaded.keys() <= parameters.keys() or parameters.keys() <= loaded.keys()
        how = allow_missing, ignore_extra, cast_dtype, dtype_source
        if by_place or any("." in name for name in loaded):
            load_values(parameters, loaded, f"file '{os.fspath(filename)}'", ctx, *how)
            return
        everything = self.collect_params()
        whole = any(bare_name(name) in everything for name in loaded)
        prefix = "" if whole else self.prefix
        everything.load_dict(loaded, ctx, *how[:2], prefix, filename, *how[2:])

    def save_params(self, filename: FileName) -> None:
        """Older form of `save_parameters`; writes full names without the prefix of this Block."""
        callsite.warn("save_params is deprecated. Please use save_parameters.")
        self.collect_params().save(filename, strip_prefix=self.prefix)

    def load_params(
        self, filename: FileName, ctx: Contexts = None, allow_missing: bool = False,
        ignore_extra: bool = False,
    ) -> None:  # fmt: skip
        """Older form of `load_parameters`."""
        callsite.warn("load_params is deprecated. Please use load_parameters.")
        self.load_parameters(filename, ctx, allow_missing, ignore_extra)
