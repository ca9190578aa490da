"""GPUs through CuPy, the add-on behind `gpu(i)`: the host issues work, the GPU runs it later.

When a worker has run a GPU task, nothing has been computed yet: the worker has only put work on a
stream. The next task may begin at once, so the dependency order that the engine keeps on the host
must be kept a second time on the device, by events. An operation whose inputs have been issued
needs no worker: its caller issues it.

Read the modules in this order: `module` (where CuPy comes from), `streams` (marks on streams, and
which stream waits for which), `memory` (the memory pool), `recorder` and `launches` (a program as a
list of launches, and that as a CUDA graph), `stream_worker` (a stream, and on whose thread work is
put on it), `device` (the complete device), `nccl` (sums over GPUs).

`kernels` holds the CUDA C; `emit_cuda` writes the fused groups of a compiled program; `products`
calls cuBLAS.
"""
