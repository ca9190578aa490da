"""GPUs through CuPy, the add-on behind `gpu(i)`: the host only says what is to be done.

A worker that has run a task of a GPU has not computed anything: it has put work on a stream, and
the GPU will come to it. So the next task may begin at once, and the order that the engine keeps on
the host has to be kept once more, on the device, by events.

To be read in this order: `module` (where CuPy comes from), `streams` (marks on streams, and who has
to wait for which), `memory` (its pool), `staging` (host memory that a GPU can read by itself),
`lanes` (a stream with the worker that fills it), `device` (all of it as one device), `nccl` (sums),
`recording` (work that is told once and done many times), `replay` and `replay_tasks` (calls of a
program as such work). `nccl_multiprocess` sums over the GPUs of several processes.

`kernels` is the CUDA C; `ops` registers it with the ops, `emit_cuda` writes the fused groups
of a compiled program; `products` calls cuBLAS.
"""
