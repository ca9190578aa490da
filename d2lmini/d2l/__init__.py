"""d2l: what the chapters, and their readers, use again and again.

    Benchmark   times a block, a function or its repetitions, and knows what was still in flight
    compare     times candidates against each other and returns a Verdict
    Verdict     who is faster, by how much, how surely; one sentence
    get_mem     resident memory of this process in MB
    timeline    a picture of who was busy with what, and when

The order to read: `benchmark.py` (one clock), `compare.py` (fair rounds), `verdict.py` (what may
be concluded from them), `claims.py` (claims of the chapters, checked on your machine), `plot.py`.
"""

from d2lmini.d2l.benchmark import Benchmark
from d2lmini.d2l.compare import compare
from d2lmini.d2l.memory import get_mem
from d2lmini.d2l.plot import timeline
from d2lmini.d2l.verdict import Ratio, Verdict

__all__ = ["Benchmark", "Ratio", "Verdict", "compare", "get_mem", "timeline"]
