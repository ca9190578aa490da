"""Reductions over the threads of a block: sums and maxima; each thread gets the result.

A kernel that needs a reduction begins with `BLOCK`. Each thread first reduces a part of the
numbers, with the stride of the block; then a tree over the threads combines the parts, so the order
of the sum depends only on the number of threads.
"""

from __future__ import annotations

from d2lmini.cuda.kernels.launch import THREADS

BLOCK = f"""
// The sum or maximum of `mine` over all threads of a block; each thread gets the result.
template <bool largest> __device__ A block_reduce(A mine) {{
    __shared__ A all[{THREADS}];
    const int me = threadIdx.x;
    __syncthreads();  // other threads may still read the previous values
    all[me] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {{
        if (me < half)
            all[me] = largest ? maximum(all[me], all[me + half]) : all[me] + all[me + half];
        __syncthreads();
    }}
    return all[0];
}}
"""
