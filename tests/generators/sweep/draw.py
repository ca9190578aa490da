"""One question: which modules there are, and the program and the real answer of a seed.

`case` runs in the process of the real MXNet, which draws until a call succeeds.
"""

import contextlib
import ctypes
import random

from generators.sweep import calls, classes
from generators.sweep.compare import difference
from generators.sweep.execute import run
from generators.sweep.values import RANDOM

#: What writes the programs of a module.
MODULES = {
    "nd": calls.call_program,
    "nd.NDArray": calls.method_program,
    "nd.random": calls.call_program,
    "nd.linalg": calls.call_program,
    "nd.contrib": calls.call_program,
    "sym": calls.symbol_program,
    "gluon.nn": classes.layer,
    "gluon.rnn": classes.recurrent,
    "gluon.loss": classes.loss,
    "metric": classes.metric,
    "optimizer": classes.optimizer,
    "init": classes.initializer,
    "lr_scheduler": classes.schedule,
}
#: A call has so many tries to succeed in the real MXNet; every fifth seed has one.
TRIES = 25
ERRORS = 5


def fill_memory(byte):
    """New memory holds this byte: what is read but was never written differs between two runs."""
    with contextlib.suppress(OSError, AttributeError):  # glibc alone has it
        ctypes.CDLL(None).mallopt(-6, byte)


def case(mx, module, name, seed, start=0):
    """(program, what MXNet answers, whether that is random)."""
    fill_memory(0x2A)
    for attempt in range(start, start + TRIES):
        rng = random.Random(f"{module}.{name} {seed} {attempt}")
        text = MODULES[module](mx, rng, module, name)
        answer = run(mx, text)
        if answer[1] is None or seed % ERRORS == 0:
            break
    fill_memory(0x55)
    again = run(mx, text)
    by_name = RANDOM.search(f"{module}.{name}") or ("ropout" in text and "record(" in text)
    return text, answer, bool(by_name) or difference(answer, again, False) is not None
