"""HybridBlock: a Block whose computation can be run as it is written, or compiled.

>>> from d2lmini import nd
>>> from d2lmini.gluon import nn
>>> class Scale(nn.HybridBlock):
...     def __init__(self, **kwargs):
...         super().__init__(**kwargs)
...         self.factor = self.params.get("factor", shape=(1, 0), init="ones",
...                                       allow_deferred_init=True)
...     def infer_shape(self, x):                     # completes the shape, from the first input
...         self.factor.shape = (1, x.shape[1])
...     def hybrid_forward(self, F, x, factor):       # each parameter comes under its own name
...         return F.broadcast_mul(x, factor)
>>> net = Scale()
>>> net.initialize()
>>> net(nd.ones((2, 3))).shape, net.factor.shape
((2, 3), (1, 3))

`hybrid_forward` uses only `F` and methods that arrays and symbols share. `F` is `nd` when arrays
come in; the compiler will call it with symbols instead, to get the graph. After
`mxnet.gluon.HybridBlock`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from d2lmini import ndarray as nd
from d2lmini.base import MXNetError
from d2lmini.gluon.block import Block
from d2lmini.gluon.nested import flatten
from d2lmini.gluon.parameter import DeferredInitializationError
from d2lmini.gluon.utils import shape_is_known
from d2lmini.ndarray import NDArray

_NO_SHAPE = "Deferred initialization failed because shape cannot be inferred."


class HybridBlock(Block):
    """The base of layers and networks that can be hybridized; all children must be HybridBlocks.

    A subclass writes `hybrid_forward(F, x, *args, **params)`, or a plain `forward` (then it sees to
    its parameters itself).

    The hook for layers whose parameters have unknown sizes (0 in their shapes, with
    allow_deferred_init): `infer_shape(self, *inputs)` is called once, before the first forward,
    with the very inputs of the call; it sets `self.weight.shape = (...)` for each such parameter,
    from the shapes of the inputs and no more. (MXNet finds them out backwards from the graph.)
    """

    def __init__(self, prefix: str | None = None, params: Any = None):
        super().__init__(prefix, params)
        self._active = False
        self._flags: list[tuple[str, Any]] = []

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

        At the first call parameters whose initialization was deferred get their shapes. ValueError
        when there is no array among the inputs.
        """
        ctx = x._ctx if type(x) is NDArray else self._context_of(x, args)
        params: dict[str, Any] = {}
        try:
            for name, parameter in self._reg_params.items():
                # Parameter.data(ctx), its first lines here: a call saved for each.
                one = parameter._one
                params[name] = one if one is not None and one._ctx is ctx else parameter.data(ctx)
        except DeferredInitializationError:
            self._finish_deferred(x, *args)
            params = {name: p.data(ctx) for name, p in self._reg_params.items()}
        return self.hybrid_forward(nd, x, *args, **params)

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **params: Any) -> Any:
        """What it computes, by functions of F; a subclass writes it."""
        raise NotImplementedError(
            f"{type(self).__name__} has no hybrid_forward(); write "
            "`def hybrid_forward(self, F, x, ...): ...`, with an argument for each parameter"
        )

    def _context_of(self, x: Any, args: tuple) -> Any:
        """Where the first array among the (nested) inputs is."""
        for value in flatten([x, *args])[0]:
            if isinstance(value, NDArray):
                return value._ctx
        got = ", ".join(type(value).__name__ for value in (x, *args))
        raise ValueError(
            "In HybridBlock, there must be one NDArray or one Symbol in the input. Please check "
            f"the type of the args. {type(self).__name__} got {got}"
        )

    def _finish_deferred(self, *inputs: Any) -> None:
        """Complete the shapes of its own parameters, and make the arrays that were put off."""
        own = self._reg_params.values()
        if not all(shape_is_known(parameter.shape) for parameter in own):
            try:
                self.infer_shape(*inputs)
            except MXNetError as problem:
                raise ValueError(f"{_NO_SHAPE} {problem}") from problem
        for parameter in own:
            parameter._finish_deferred_init()

    def infer_shape(self, *inputs: Any) -> None:
        """Complete the shapes of its own parameters from those of the inputs: the hook that a layer
        with unknown sizes overrides. ValueError here, when there is one and nobody did.

        Those of children get theirs at the first call; to ask for them without one comes with the
        compiler.
        """
        for parameter in self._reg_params.values():
            if not shape_is_known(parameter.shape):
                raise ValueError(
                    f"{_NO_SHAPE} '{parameter.name}'{parameter._place()} has shape "
                    f"{parameter.shape}. Give its whole shape, or write "
                    f"{type(self).__name__}.infer_shape(self, *inputs), which sets "
                    "self.<parameter>.shape from the shapes of the inputs"
                )
        if not all(shape_is_known(p.shape) for p in self._collect_params_with_prefix().values()):
            self._later("infer_shape", "calling the net once completes all shapes")

    def infer_type(self, *inputs: Any) -> None:
        """Complete the dtypes of parameters from those of the inputs; comes with the compiler."""
        self._later("infer_type", "net.cast(dtype) sets the dtype of all parameters")

    # -- compiling ---------------------------------------------------------------------------------

    def hybridize(
        self,
        active: bool = True,
        backend: str | None = None,
        clear: bool = True,
        static_alloc: bool = False,
        static_shape: bool = False,
        inline_limit: int = 2,
        forward_bulk_size: int | None = None,
        backward_bulk_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Ask for this Block and those in it to be compiled; the flags are remembered, and until
        the compiler is there calls run as they are written."""
        if kwargs:
            raise TypeError(
                f"hybridize: unknown flags {sorted(kwargs)}; known are backend, clear, "
                "static_alloc, static_shape, inline_limit, forward_bulk_size, backward_bulk_size"
            )
        self._active = active
        self._flags = [
            ("static_alloc", static_alloc),
            ("static_shape", static_shape),
            ("inline_limit", inline_limit),
        ]
        for name, size in (("forward", forward_bulk_size), ("backward", backward_bulk_size)):
            if size is not None:
                self._flags.append((f"{name}_bulk_size", size))
        super().hybridize(
            active,
            static_alloc=static_alloc,
            static_shape=static_shape,
            inline_limit=inline_limit,
            forward_bulk_size=forward_bulk_size,
            backward_bulk_size=backward_bulk_size,
        )

    def export(self, path: str, epoch: int = 0, remove_amp_cast: bool = True) -> NoReturn:
        """Write the graph and the parameters for use without the class; comes with the compiler."""
        self._later("export", "save_parameters writes the parameters")

    def optimize_for(self, x: Any, *args: Any, **kwargs: Any) -> NoReturn:
        """Compile for `x` with a backend of choice; comes with the compiler."""
        self._later("optimize_for", "calling the net computes the same")

    def _later(self, what: str, instead: str) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__}.{what} is not built yet: it comes with the compiler; {instead}"
        )


class SymbolBlock(HybridBlock):
    """A Block made of a graph instead of a class; comes with the compiler."""

    def __init__(self, outputs: Any, inputs: Any, params: Any = None):
        self._later("__init__", "write a HybridBlock with the same computation")

    @staticmethod
    def imports(
        symbol_file: str,
        input_names: Any,
        param_file: str | None = None,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
    ) -> NoReturn:
        """Read a net that `export` wrote; comes with the compiler."""
        raise NotImplementedError(
            "SymbolBlock.imports is not built yet: it comes with the compiler; build the net from "
            "its class and use load_parameters, which reads exported .params files too"
        )
