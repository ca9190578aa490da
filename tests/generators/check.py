"""One drawn program: do all engines agree to the bit, and its twin in another library nearly?

A generator may say how near MXNet has to be (`MXNET = rtol, atol`; absent: it has no twin there),
or bring a check of its own, `check(seed) -> bool`, which says whether there was a twin.
"""

from __future__ import annotations

from typing import Any

from generators import mxnet_twin
from generators.agree import agree, close

_mxnet = mxnet_twin.MXNet()


def check(generator: Any, seed: int) -> bool:
    """AssertionError where results differ; True if the program had a twin in another library."""
    if hasattr(generator, "check"):
        return bool(generator.check(seed))
    text = generator.draw(seed)
    ours = agree(text)
    tolerance = getattr(generator, "MXNET", None)
    if tolerance is None or not mxnet_twin.PYTHON:
        return False
    close(ours, _mxnet.results(text), *tolerance, "naive and MXNet", text)
    return True
