"""What the threads of a block put together: sums and maxima, each thread gets the result.

A kernel that needs one begins with `BLOCK`. Each thread first goes through a part of the numbers,
with the stride of the block; then halves of the threads add to each other, so the order of the sum
depends on the number of threads alone.
"""

from __future__ import annotations

from d2lmini.cuda.kernels.launch import THREADS

BLOCK = f"""
// What all threads of a block have, put together; each of them gets it.
template <bool largest> __device__ A together(A mine) {{
    __shared__ A all[{THREADS}];
    const int me = threadIdx.x;
    __syncthreads();  // others may still read what was there
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
