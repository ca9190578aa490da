"""Traces of what the engine did, and analyses of where the time went.

records    records of a trace: operations, waits, memory; numbers and names, no arrays; and the
           listener that makes those of operations
tracing    `profile()`: listens to the engine and keeps the records, with the times of operations
           on a GPU; `load` reads a trace again
evidence   CPU time of operations
draw       pictures: the timeline, and the dependencies, which `engine.order` derives
summary    tables of operations
trace_file a trace as a file, for Perfetto too; `foreign` reads those of PyTorch and JAX
event_graph    what had to come after what, and why: the critical path, what keeps two operations
           apart, what no order of the operations beats
waits      the ledger of waits, and the lint of hidden ones
memory     memory in use over time, and the owners of the peak
account    wall time by cause: a walk back through the event graph
replay     what if: other workers, devices, links, waits; from the event graph and
           `engine.simulation` (the engine's rules); `contention` makes bands of predictions

MXNet's own profiler (set_config, set_state, dump, dumps) is in the add-on `compat`;
`d2lmini.profiler` shows those names too.
"""

from __future__ import annotations

from typing import Any

from d2lmini import addons
from d2lmini.profiler.records import Operation as Operation
from d2lmini.profiler.records import Wait as Wait
from d2lmini.profiler.tracing import Trace as Trace
from d2lmini.profiler.tracing import load as load
from d2lmini.profiler.tracing import profile as profile


def __getattr__(name: str) -> Any:
    return addons.attribute_of(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *addons.names_of(__name__)})
