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
classic    MXNet's own: set_config, set_state, dump, dumps; `classic_objects`: Task, Counter, ...
"""

from __future__ import annotations

from d2lmini.profiler.classic import dump as dump
from d2lmini.profiler.classic import dump_profile as dump_profile
from d2lmini.profiler.classic import dumps as dumps
from d2lmini.profiler.classic import pause as pause
from d2lmini.profiler.classic import profiler_set_config as profiler_set_config
from d2lmini.profiler.classic import profiler_set_state as profiler_set_state
from d2lmini.profiler.classic import resume as resume
from d2lmini.profiler.classic import set_config as set_config
from d2lmini.profiler.classic import set_state as set_state
from d2lmini.profiler.classic import start as start
from d2lmini.profiler.classic import stop as stop
from d2lmini.profiler.classic_objects import Counter as Counter
from d2lmini.profiler.classic_objects import Domain as Domain
from d2lmini.profiler.classic_objects import Event as Event
from d2lmini.profiler.classic_objects import Frame as Frame
from d2lmini.profiler.classic_objects import Marker as Marker
from d2lmini.profiler.classic_objects import Task as Task
from d2lmini.profiler.classic_objects import scope as scope
from d2lmini.profiler.records import Operation as Operation
from d2lmini.profiler.records import Wait as Wait
from d2lmini.profiler.trace import Trace as Trace
from d2lmini.profiler.trace import profile as profile
