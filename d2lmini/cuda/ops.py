"""The ops for which a GPU has kernels of its own: better algorithms than NumPy's formulas.

Each module of `kernels` registers its kernels with the ops. Products are cuBLAS's; functions of
`linalg` are called a second time if memory is short, because cuSOLVER allocates memory for its own
use, which CuPy's pool may have cached.
"""

from __future__ import annotations

from d2lmini.cuda import products
from d2lmini.cuda.kernels import convolve, random_numbers, recurrent, rows, updates, windows
from d2lmini.ops.products import kernels

__all__ = ["convolve", "random_numbers", "recurrent", "rows", "updates", "windows"]

kernels.register("cuda")(products.matmul)
