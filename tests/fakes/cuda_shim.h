// CUDA C as C++: enough for kernels that walk with the stride of the whole grid, run by one thread,
// and for those whose blocks put something together, run by the threads of one block.
#pragma once
#include <pthread.h>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

struct dim3_shim { unsigned x, y, z; };
static thread_local dim3_shim threadIdx = {0, 0, 0}, blockIdx = {0, 0, 0};
static thread_local dim3_shim blockDim = {1, 1, 1}, gridDim = {1, 1, 1};

// A block's threads, which wait for each other; with one there is nobody to wait for.
static pthread_barrier_t block_barrier;
inline void __syncthreads() {
    if (blockDim.x > 1) pthread_barrier_wait(&block_barrier);
}
template <class Body> struct BlockThread {
    unsigned thread, threads, row, rows;
    Body* body;
    static void* start(void* given) {
        BlockThread& self = *(BlockThread*) given;
        threadIdx.x = self.thread;
        blockDim.x = self.threads;
        blockIdx.y = self.row;
        gridDim.y = self.rows;
        (*self.body)();
        return nullptr;
    }
};
template <class Body> void run_block(unsigned threads, unsigned row, unsigned rows, Body body) {
    if (threads == 1) {
        blockIdx.y = row;
        gridDim.y = rows;
        body();
        return;
    }
    pthread_t handles[16];
    BlockThread<Body> all[16];
    pthread_barrier_init(&block_barrier, nullptr, threads);
    for (unsigned i = 0; i < threads; ++i) {
        all[i] = {i, threads, row, rows, &body};
        pthread_create(&handles[i], nullptr, BlockThread<Body>::start, &all[i]);
    }
    for (unsigned i = 0; i < threads; ++i) pthread_join(handles[i], nullptr);
    pthread_barrier_destroy(&block_barrier);
}

inline void sincospi(double x, double* sine, double* cosine) {
    *sine = sin(M_PI * x);
    *cosine = cos(M_PI * x);
}
inline void sincospif(float x, float* sine, float* cosine) {
    double s, c;
    sincospi(x, &s, &c);
    *sine = (float) s;
    *cosine = (float) c;
}

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
