"""Expressions on Symbols, and what a library says to them: both interpreters import this module.

The rows are lines of `data/symbol_rows.txt`, where those that differ from MXNet on purpose stand
under their reason. They are evaluated with `x`, `y`, `z` as variables, inside a NameManager.
"""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).resolve().parents[1] / "data" / "symbol_rows.txt"


def read_rows() -> dict[str, str]:
    """The rows; each with the reason why our answer differs from MXNet's, '' if it does not."""
    found, reason = {}, ""
    for line in FILE.read_text("utf-8").splitlines():
        if line.startswith("# "):
            reason = line[2:]
        else:
            found[line] = reason
    return found


REASONS = read_rows()
ROWS = [row for row, reason in REASONS.items() if not reason]


def answer(mx: Any, row: str, wanted: str = "") -> Any:
    """What `mx` says to a row, in plain Python; `wanted`: the kind of error that it should be."""
    sym = mx.sym
    with mx.name.NameManager(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x, y, z = sym.var("x"), sym.var("y"), sym.var("z")
        first = sym.FullyConnected(sym.var("data"), num_hidden=4, name="f1")
        net = sym.FullyConnected(sym.var("data2"), num_hidden=3, name="f2")

        def scoped(function: Any) -> Any:
            with mx.AttrScope(ctx_group="dev1", __data__="great"):
                return function()

        def labelled(symbol: Any) -> Any:
            return [symbol.attr("__mood__"), symbol.attr("lr_mult"), symbol.attr("__lr_mult__")]

        names = {
            "sym": sym,
            "mx": mx,
            "nd": mx.nd,
            "x": x,
            "y": y,
            "z": z,
            "net": net,
        }
        names.update(first=first, scoped=scoped, labelled=labelled, np=np, copy=copy, json=json)
        names.update(pickle=pickle, fc=sym.FullyConnected(x, num_hidden=3, name="fc"))
        names.update(bn=sym.BatchNorm(x, name="bn"), split=sym.split(x, num_outputs=2, name="s"))
        names["rnn"] = sym.RNN(x, state_size=4, num_layers=1, mode="gru", name="rnn")
        names["group"] = sym.Group([names["fc"], names["split"], y])
        try:
            result = plain(eval(row, names), mx)
        except Exception as problem:
            result = {"error": family(problem, wanted)}
    return result


def family(problem: Exception, wanted: str = "") -> str:
    """The built-in kind of an error, MXNetError counts as itself; `wanted` if it is one."""
    names = [kind.__name__ for kind in type(problem).__mro__]
    return wanted if wanted in names else next(name for name in names if name in FAMILIES)


FAMILIES = """MXNetError TypeError ValueError IndexError AttributeError NotImplementedError
    NotImplementedForSymbol Exception""".split()


def plain(value: Any, mx: Any) -> Any:
    """A result in plain Python."""
    if isinstance(value, mx.sym.Symbol):
        return {
            "name": value.name,
            "outputs": value.list_outputs(),
            "arguments": value.list_arguments(),
            "states": value.list_auxiliary_states(),
        }
    if isinstance(value, mx.nd.NDArray):
        return value.asnumpy().tolist()
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, dict):
        return {key: plain(value[key], mx) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [plain(each, mx) for each in value]
    return value
