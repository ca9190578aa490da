"""What the engine did and why it took so long: traces, and what can be read off them.

records    what a trace keeps: operations, waits, memory; numbers and names, no array; `threads`
trace      `profile()`: listens to the engine and keeps the records
gpu        when a GPU did it, and ranges for NVIDIA's tools
order      what comes after what; `graph` draws it
draw       the timeline; `summary` the table, `html` a page, `chrome` a file for Perfetto
waits      the ledger of waits; `lint` finds those that no line says
memory     how much arrays took over time, and who held the peak
account    where the time went, by cause; from `blame` (why workers were idle) and `bounds`
critical_path    the chain that decided; `roofline` what was reached of the machine's `peaks`
replay     what if: other workers, devices, links, waits, priorities; from `program` (what the
           threads did), `rates` (how fast things were) and `simulation` (the engine's rules)
diff       what differs between two runs

MXNet's own profiler (set_config, set_state, dump, dumps, Task, Counter, ...) is in the add-on
`compat`; `d2lmini.profiler` shows those names too.
"""

from __future__ import annotations

from typing import Any

from d2lmini import addons
from d2lmini.profiler.records import Operation as Operation
from d2lmini.profiler.records import Wait as Wait
from d2lmini.profiler.trace import Trace as Trace
from d2lmini.profiler.trace import profile as profile


def __getattr__(name: str) -> Any:
    return addons.attribute_of(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *addons.names_of(__name__)})
