// CUDA C as C++: enough for kernels that walk with the stride of the whole grid, run by one thread.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3_shim { unsigned x, y, z; };
static thread_local dim3_shim threadIdx = {0, 0, 0}, blockIdx = {0, 0, 0};
static thread_local dim3_shim blockDim = {1, 1, 1}, gridDim = {1, 1, 1};

// Where a kernel converts by an instruction of the GPU.
typedef unsigned short half_bits;
inline float widened(half_bits h) {
    _Float16 x;
    memcpy(&x, &h, 2);
    return x;
}
template <class T> half_bits narrowed(T x) {
    _Float16 y = (_Float16) x;
    half_bits h;
    memcpy(&h, &y, 2);
    return h;
}
