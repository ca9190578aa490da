"""What the engine did and why it took so long: traces, and what can be read off them.

records    what a trace keeps: operations, waits, memory; numbers and names, no array
trace      `profile()`: listens to the engine and keeps the records
"""

from __future__ import annotations

from d2lmini.profiler.records import Operation as Operation
from d2lmini.profiler.records import Wait as Wait
from d2lmini.profiler.trace import Trace as Trace
from d2lmini.profiler.trace import profile as profile
