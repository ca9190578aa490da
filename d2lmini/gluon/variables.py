"""Parameters as variables of graphs, with labels for their training settings.

>>> from d2lmini import gluon
>>> weight = gluon.Parameter("dense0_weight", shape=(4, 0), wd_mult=0)
>>> weight.var()
<Symbol dense0_weight>
>>> weight.var().attr("__shape__"), weight.var().attr("wd_mult")
('(4, 0)', '0')

The labels are MXNet's: MXNet reads them from exported files.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d2lmini.base.dtypes import flag_of
from d2lmini.gluon.utils import shape_is_known
from d2lmini.graph.ir import Node
from d2lmini.graph.symbolic_trace import thread_state
from d2lmini.ops.core import Spec, as_dtype
from d2lmini.symbol.naming import AttrScope
from d2lmini.symbol.symbol import Symbol


class _Arrays:
    """`now` is replaced by a new object whenever any parameter gets new arrays. A compiled net
    checks with one comparison whether its list of arrays is current."""

    now: Any = None


arrays = _Arrays()


def variable_of(parameter: Any) -> Symbol:
    """The variable of a parameter: outside traces always the same, and one in each trace."""
    if thread_state.trace is not None:
        if not shape_is_known(parameter.shape):
            parameter._check_and_get("_data", None)  # raises the fitting error
        spec = Spec(parameter.shape, np.dtype(parameter.dtype))
        return thread_state.trace.parameter(parameter, spec, labels_of(parameter))
    if parameter._var is None:
        labels = AttrScope.current.get(labels_of(parameter))
        parameter._var = Symbol(((Node(None, parameter.name, labels=labels), 0),))
    return parameter._var


def labels_of(parameter: Any) -> dict[str, str]:
    """The labels that MXNet writes for a parameter in graphs."""
    how = {"lr_mult": str(parameter.lr_mult), "wd_mult": str(parameter.wd_mult)}
    labels = {
        "__shape__": str(parameter.shape),
        "__dtype__": str(flag_of(as_dtype(parameter.dtype))),
        "__storage_type__": "0",
        **{f"__{name}__": value for name, value in how.items()},
        **how,
    }
    if parameter.init is not None:
        init = parameter.init
        labels["__init__"] = init if isinstance(init, str) else init.dumps()
    return labels
