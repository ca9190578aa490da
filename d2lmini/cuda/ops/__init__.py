"""GPU kernels for ops where a GPU has a better algorithm than NumPy's formula.

A file here registers kernels for the ops of the file of the same name in `d2lmini.ops`. matmul by
cuBLAS (`products`) is registered here.
"""

from d2lmini.cuda import products
from d2lmini.cuda.ops import (
    convolve,
    index,
    pool,
    random,
    rnn,
    update,
)
from d2lmini.ops.products import matmul

matmul.kernel("cuda")(products.matmul)
