"""MXNet names that d2lmini leaves out, and the error that explains why.

>>> from d2lmini import nd
>>> nd.histogram
Traceback (most recent call last):
AttributeError: nd.histogram is left out of d2lmini, np.histogram(x.asnumpy()) does the same
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, NoReturn

from d2lmini.base import missing_attribute

# Reasons (a topic, or an alternative) and the names (patterns) they cover.
LEFT_OUT = {
    "as all of MXNet's image operations": """
        image imdecode Correlation Crop GridGenerator BilinearSampler SpatialTransformer
        AdaptiveAvgPooling2D BilinearResize2D """,
    "as all of MXNet's operations for detection": """
        ROIPooling ROIAlign RROIAlign PSROIPooling *MultiBox* *Proposal Deformable* Modulated*
        box_* bipartite_matching""",
    "as all of MXNet's tools for text": "text",
    "as all of MXNet's sparse arrays": """
        SparseEmbedding *CSRNDArray *SparseNDArray csr_matrix row_sparse_array retain getnnz edge_id
        dgl_* group_adagrad_update""",
    "the optimizers update all parameters in one task anyway": """
        multi_sgd_update multi_sgd_mom_update multi_mp_sgd_update multi_mp_sgd_mom_update
        multi_lamb_update multi_mp_lamb_update multi_adamw_update multi_mp_adamw_update""",
    "x[:] = 0 for each array does the same": "reset_arrays",
    "d2lmini.np and d2lmini.npx have these functions": "numpy numpy_extension",
    "as all of MXNet's custom operators": "Custom",
    "as all of MXNet's quantization": "quantize* quantized_* dequantize requantize calibrate_*",
    "as all of MXNet's densities": "*random_pdf_*",
    "as are layers that newer ones have replaced": "BatchNorm_v1 Convolution_v1 Pooling_v1",
    "a Python loop or if does the same": "foreach while_loop cond",
    "np.histogram(x.asnumpy()) does the same": "histogram",
    "x[begin:end] = value does the same": "slice_assign slice_assign_scalar",
    "gluon.contrib.nn.SyncBatchNorm, the layer, does it": "SyncBatchNorm",
}


def explain(where: str, name: str, names: Iterable[str] = ()) -> AttributeError:
    """The error for a missing name: left out on purpose, or unknown; `names`: those that exist."""
    for reason, patterns in LEFT_OUT.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns.split()):
            return AttributeError(f"{where}.{name} is left out of d2lmini, {reason}")
    return missing_attribute(where, name, names, f"; dir({where}) lists the names")


class LeftOut:
    """A method of MXNet that is left out: access raises an error with the reason."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise explain(owner.__name__, self.name)
