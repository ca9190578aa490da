"""GPUs without a GPU, for the fake of CuPy: streams, memory and pinned memory of several devices.

The rules, the order of work and its check are those of `labs.streams`, which chapter 11 shows: a
random legal order, and an OrderError for two accesses that nothing orders. This package adds what
the library uses beside streams and events: several devices and threads, pools that lend memory
again, pinned memory, captured graphs and planted failures.

Modules, from the ground up: `errors`, `order` (what work and memory remember in addition),
`machine`, `graphs`, `stream` (Device, Stream, Event), `host_memory`, `memory` (pools).
"""
