"""HybridBlock: a Block that runs eagerly or, after `hybridize()`, as a compiled graph.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> class Scale(nn.HybridBlock):
...     def __init__(self, **kwargs):
...         super().__init__(**kwargs)
...         self.factor = self.params.get("factor", shape=(1, 0), init="ones",
...                                       allow_deferred_init=True)
...     def infer_shape(self, x):                     # completes the shape from the first input
...         self.factor.shape = (1, x.shape[1])
...     def hybrid_forward(self, F, x, factor):       # each parameter is passed by its name
...         return F.broadcast_mul(x, factor)
>>> net = Scale()
>>> net.initialize()
>>> net(nd.ones((2, 3))).shape, net.factor.shape
((2, 3), (1, 3))

`hybrid_forward` uses only `F` and methods that arrays and Symbols share. `F` is `nd` for arrays and
`sym` for Symbols. Called with Symbols, the net builds a graph that can be saved or compiled.

>>> from d2lmini import sym
>>> net(sym.var("data")).list_arguments() == ["data", net.factor.name]
True

After `hybridize()` the first call with arrays traces the net with Symbols. Later calls run the
compiled graph (`compiled.py`). After `mxnet.gluon.HybridBlock`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from d2lmini import addons, symbol
from d2lmini import ndarray as nd
from d2lmini.base import LeftOut, MXNetError, explain_left_out
from d2lmini.base.families import Declared
from d2lmini.gluon.block import Block
from d2lmini.gluon.compiled import HybridCache, Programs, complete_shapes, flatten, regroup
from d2lmini.gluon.parameter import DeferredInitializationError
from d2lmini.gluon.utils import shape_is_known
from d2lmini.graph.symbolic_trace import initializing, one_at_a_time
from d2lmini.ndarray import NDArray
from d2lmini.ops.core import modes
from d2lmini.symbol import Symbol

#: The flags of `hybridize`, in MXNet's order.
_FLAGS = (
    "static_alloc", "static_shape", "inline_limit", "forward_bulk_size", "backward_bulk_size",
    "backward_do_mirror",
)  # fmt: skip


class HybridBlock(Block):
    """Base class of layers and networks that can be hybridized; all children must be HybridBlocks.

    A subclass defines `hybrid_forward(F, x, *args, **params)`, or a plain `forward`, which must
    then fetch the parameters itself.

    The first call completes unknown sizes of parameters (0 in the shape, with allow_deferred_init)
    by `infer_shape`, from the graph and the shapes of the inputs, as in MXNet. Where the ops do not
    tell a size, a class defines `infer_shape(self, *inputs)`, which sets `self.weight.shape = ...`
    for each such parameter from the shapes of the inputs.
    """

    def __init__(self, prefix: str | None = None, params: Any = None):
        super().__init__(prefix, params)
        self._active = False
        self._flags: list[tuple[str, Any]] = []

    def __getstate__(self) -> dict:
        return {k: v for k, v in super().__getstate__().items() if k != "forward"}

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._clear_cached_op()

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Make `block` a child; ValueError unless it is a HybridBlock."""
        if not isinstance(block, HybridBlock):
            raise ValueError(
                f"Children of HybridBlock must also be HybridBlock, but {block!r} has type "
                f"{type(block)}. If you are using Sequential, please try HybridSequential instead."
            )
        super().register_child(block, name)

    # -- calls -------------------------------------------------------------------------------------

    def forward(self, x: Any, *args: Any) -> Any:
        """`hybrid_forward` with F = nd and the parameters in the context of `x`.

        The first call completes the shapes of parameters with deferred initialization. Raises
        ValueError when no input is an array.
        """
        if type(x) is NDArray:
            ctx = x._ctx
        else:
            ctx = self._context_of([x, *args])
            if ctx is None:
                variables = self._variables(x, args)
                with self.name_scope():
                    return self.hybrid_forward(symbol, x, *args, **variables)
        if not self._reg_params:
            return self.hybrid_forward(nd, x, *args) if args else self.hybrid_forward(nd, x)
        params: dict[str, Any] = {}
        try:
            for name, parameter in self._reg_params.items():
                # The first lines of Parameter.data(ctx), inlined: saves a call for each parameter.
                one = parameter._one
                params[name] = one if one is not None and one._ctx is ctx else parameter.data(ctx)
        except DeferredInitializationError:
            self._finish_deferred(x, *args)
            params = {name: p.data(ctx) for name, p in self._reg_params.items()}
        return self.hybrid_forward(nd, x, *args, **params)

    def _variables(self, x: Any, args: tuple) -> dict[str, Any]:
        """The variables of the Block's own parameters, for a call with Symbols."""
        trace = modes.tracing
        if trace is not None and any(not p._data for p in self._reg_params.values()):
            flat, form = flatten([x, *args])
            self._finish_deferred(*regroup([trace.with_shape(value) for value in flat], form)[0])
        return {name: p.var() for name, p in self._reg_params.items()}

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **params: Any) -> Any:
        """Compute the output with functions of F; a subclass defines this method."""
        raise NotImplementedError(
            f"{type(self).__name__} has no hybrid_forward(); write "
            "`def hybrid_forward(self, F, x, ...): ...`, with an argument for each parameter"
        )

    def _context_of(self, args: Any) -> Any:
        """The context of the first array among the (nested) inputs; None if there are Symbols."""
        flat = flatten(args)[0]
        if any(isinstance(value, Symbol) for value in flat):
            return None
        for value in flat:
            if isinstance(value, NDArray):
                return value._ctx
        got = ", ".join(type(value).__name__ for value in args)
        raise ValueError(
            "In HybridBlock, there must be one NDArray or one Symbol in the input. Please check "
            f"the type of the args. {type(self).__name__} got {got}"
        )

    def _finish_deferred(self, *inputs: Any) -> None:
        """Complete the shapes of this Block's own parameters and make the deferred arrays."""
        own = self._reg_params.values()
        with one_at_a_time():
            if not all(shape_is_known(parameter.shape) for parameter in own):
                try:
                    self.infer_shape(*inputs)
                except (MXNetError, AssertionError, AttributeError) as problem:
                    failed = "Deferred initialization failed because shape cannot be inferred."
                    raise ValueError(f"{failed} {problem}") from problem
            with initializing():
                for parameter in own:
                    parameter._finish_deferred_init()

    def infer_shape(self, *inputs: Any) -> None:
        """Complete the shapes of all parameters from the shapes of the inputs, without a call.

        A layer overrides this method for its own parameters (see above). The default infers the
        shapes from the graph, as far as the ops allow. Raises MXNetError when a shape stays unknown
        or shapes contradict each other.
        """
        complete_shapes(self, inputs)
        for parameter in self._reg_params.values():
            if not shape_is_known(parameter.shape):
                raise MXNetError(
                    f"'{parameter.name}'{parameter._place()} has shape "
                    f"{parameter.shape}, and the ops that use it do not say more. Give its whole "
                    f"shape, or write {type(self).__name__}.infer_shape(self, *inputs), which sets "
                    "self.<parameter>.shape from the shapes of the inputs"
                )

    infer_type = LeftOut()
    optimize_for = LeftOut()

    # -- compiling ---------------------------------------------------------------------------------

    def hybridize(
        self, active: bool = True, backend: Any = None, clear: bool = True, **flags: Any
    ) -> None:
        """Compile this Block and its children from the next call on; active=False turns this off.

        Earlier compiled programs are dropped. Memory is always planned for each shape; with
        static_alloc the memory of intermediate results is kept between calls, whatever its size.
        With static_alloc and static_shape, calls on CUDA GPUs run as CUDA graphs where possible
        (see `cuda_graphs`).

        With backward_do_mirror (None: if MXNET_BACKWARD_DO_MIRROR=1 is in the environment) forward
        keeps the fewest bytes for backward from which backward can compute what it reads by cheap
        ops; results are equal to the bit (`graph/backward.py`).

        The other flags (`_FLAGS`) are MXNet's and have no effect. Raises TypeError for unknown
        flags.
        """
        unknown = sorted(flags.keys() - set(_FLAGS))
        if unknown:
            known = ", ".join(("backend", "clear", *_FLAGS))
            raise TypeError(f"hybridize: unknown flags {unknown}; known are {known}")
        self._active = active
        given = {"static_alloc": False, "static_shape": False, "inline_limit": 2, **flags}
        self._flags = [(n, given[n]) for n in _FLAGS if given.get(n) is not None]
        super().hybridize(active, **flags)

    def _drop_programs(self) -> None:
        self.__dict__.pop("forward", None)
        if self._active:
            # The instance attribute hides the method, so calls of an eager net check nothing.
            self.__dict__["forward"] = HybridCache(self, self._flags)

    @property
    def _sees_shapes(self) -> bool:
        """True if the class defines a plain `forward` instead of a `hybrid_forward`."""
        return type(self).hybrid_forward is HybridBlock.hybrid_forward

    def _compiled(self) -> HybridCache:
        compiled = self.__dict__.get("forward")
        if compiled is None:
            raise RuntimeError(
                f"{type(self).__name__} is not hybridized: call hybridize() and run it once"
            )
        return compiled

    def cuda_graphs(self) -> list[str]:
        """One line for each program meant to run as CUDA graphs: the number of CUDA graphs, or why
        the program runs op by op. Empty unless the Block is hybridized with static_alloc and
        static_shape and runs on a CUDA GPU."""
        found = [program.replays for program in self._compiled().programs()]
        return [str(graphs) for graphs in found if graphs is not None]

    def program(self, *inputs: Any) -> Programs:
        """The programs compiled so far, forward and backward; they print as Python. With `inputs`,
        calls the Block once and returns the programs for these inputs."""
        compiled = self._compiled()
        if inputs:
            self(*inputs)
        return compiled.programs()

    def export(self, path: str, epoch: int = 0, remove_amp_cast: bool = True) -> None:
        """Write the graph to PATH-symbol.json and the parameters to PATH-EPOCH.params.

        Both files have MXNet's formats and can be read by `SymbolBlock.imports`. remove_amp_cast:
        without the casts of mixed precision. Waits for the parameters. Raises RuntimeError unless
        the Block is hybridized and has been called.
        """
        compiled = self.__dict__.get("forward")
        if compiled is None or compiled.first is None:
            raise RuntimeError(
                "Please first call block.hybridize() and then run forward with this block at least "
                "once before calling export."
            )
        compiled.export(self, path, epoch, remove_amp_cast)

    def export_onnx(self, path: str, *inputs: Any) -> str:
        """Write the Block as an ONNX model for inputs like these, and return the path.

        The model always predicts (never trains), whatever the current mode, for inputs of these
        shapes, in version 17 of ONNX's operators. Waits for the parameters.

        Raises MXNetError, naming node and op, for ops without an ONNX operator, such as recurrent
        layers; ImportError without the package `onnx` (`pip install d2lmini[onnx]`).
        """
        return addons.find("export_onnx")(self, path, inputs)


class Layer(Declared, HybridBlock):
    """Base class of layers. A layer declares its constructor's parameters as typed class attributes
    (see `families.Declared`): they become attributes of the layer, and `_build` makes what the
    layer owns.

    >>> class Scale(Layer):
    ...     '''y = x * factor, by default for one channel.'''
    ...     channels: int = 1
    ...     init: str = "ones"
    ...     def _build(self):
    ...         self.factor = self.params.get("factor", shape=(self.channels,), init=self.init)
    ...     def hybrid_forward(self, F, x, factor):
    ...         return F.broadcast_mul(x, factor)
    >>> import inspect
    >>> inspect.signature(Scale)
    <Signature (channels=1, init='ones', **kwargs)>
    >>> Scale(3, prefix="scale_").factor
    Parameter scale_factor (shape=(3,), dtype=<class 'numpy.float32'>)
    """

    _passes_on: ClassVar[tuple[str, ...]] = ("kwargs",)

    def __init__(self, *args: Any, **kwargs: Any):
        _, more = self._take(args, kwargs)
        if unknown := more.keys() - {"prefix", "params"}:
            name, word = type(self).__name__, min(unknown)
            text = f"{name}(): got an unexpected keyword argument {word!r}"
            raise TypeError(explain_left_out(f"{name}.{word}") or text)
        super().__init__(**more)
        with self.name_scope():
            self._build()

    def __getattr__(self, name: str) -> Any:
        """`_units` is `units`: MXNet's private names, which subclasses of its layers use."""
        if name[1:] in self._fields and name[0] == "_":
            return getattr(self, name[1:])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _build(self) -> None:
        """Check the declared attributes; make parameters and children."""
