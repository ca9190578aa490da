"""Checkpoints of a Symbol and its arrays, as `mxnet.model` writes and reads them.

>>> import os, tempfile
>>> from d2lmini import nd, sym
>>> from d2lmini.compat.model import load_checkpoint, save_checkpoint
>>> y = sym.FullyConnected(sym.var("data"), num_hidden=2, name="fc")
>>> with tempfile.TemporaryDirectory() as folder:
...     prefix = os.path.join(folder, "net")
...     save_checkpoint(prefix, 3, y, {"fc_weight": nd.ones((2, 3)), "fc_bias": nd.zeros(2)}, {})
...     sorted(os.listdir(folder)), load_checkpoint(prefix, 3)[0].list_arguments()
(['net-0003.params', 'net-symbol.json'], ['data', 'fc_weight', 'fc_bias'])

The files are those of `HybridBlock.export`: `gluon.SymbolBlock.imports` reads them, too.
"""

from __future__ import annotations

from d2lmini import ndarray as nd
from d2lmini import symbol as sym
from d2lmini.ndarray import NDArray
from d2lmini.symbol import Symbol

__all__ = ["load_checkpoint", "load_params", "save_checkpoint"]

Arrays = dict[str, NDArray]


def save_checkpoint(
    prefix: str, epoch: int, symbol: Symbol | None, arg_params: Arrays, aux_params: Arrays,
    remove_amp_cast: bool = True,
) -> None:  # fmt: skip
    """Write PREFIX-symbol.json, unless `symbol` is None, and PREFIX-EPOCH.params (four digits)."""
    if symbol is not None:
        symbol.save(f"{prefix}-symbol.json", remove_amp_cast)
    arrays = {f"arg:{name}": x for name, x in arg_params.items()}
    arrays.update({f"aux:{name}": x for name, x in aux_params.items()})
    nd.save(_params_file(prefix, epoch), arrays)


def load_params(prefix: str, epoch: int) -> tuple[Arrays, Arrays]:
    """The arguments and the auxiliary states of PREFIX-EPOCH.params, by name.

    MXNetError if there is no such file, ValueError if its arrays have other names than 'arg:...'
    and 'aux:...'.
    """
    file = _params_file(prefix, epoch)
    found = nd.load(file)
    parts: dict[str, Arrays] = {"arg": {}, "aux": {}}
    for key, x in found.items() if isinstance(found, dict) else [("", found)]:
        kind, _, name = key.partition(":")
        if kind not in parts:
            raise ValueError(
                f"load_params: {file!r} has {key!r} among its names, expected 'arg:...' and "
                "'aux:...'; nd.load reads any file of arrays"
            )
        parts[kind][name] = x
    return parts["arg"], parts["aux"]


def load_checkpoint(prefix: str, epoch: int) -> tuple[Symbol, Arrays, Arrays]:
    """The Symbol in PREFIX-symbol.json, and what `load_params` reads.

    Errors: those of `sym.load` (OSError without the file) and of `load_params`.
    """
    return sym.load(f"{prefix}-symbol.json"), *load_params(prefix, epoch)


def _params_file(prefix: str, epoch: int) -> str:
    return f"{prefix}-{epoch:04d}.params"
