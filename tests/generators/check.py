"""One drawn program: do all engines agree to the bit, and its twins in other libraries nearly?

A generator may say how near the others have to be: `MXNET = rtol, atol`, and `TORCH = rtol, atol`
beside `draw_torch(seed)`, the same program for PyTorch, or None. Absent: no twin there. A program
that begins with `# not in MXNet: WHY` has none there either. Or a generator brings a check of its
own, `check(seed) -> bool`, which says whether there was a twin.
"""

from __future__ import annotations

from typing import Any

from oracle import Oracle

from generators.agree import agree, close

NOT_IN_MXNET = "# not in MXNet: "

_mxnet, _torch = Oracle("mxnet"), Oracle("torch")


def check(generator: Any, seed: int) -> bool:
    """AssertionError where results differ; True if the program had a twin in another library."""
    if hasattr(generator, "check"):
        return bool(generator.check(seed))
    text = generator.draw(seed)
    ours = agree(text)
    twins = 0
    if hasattr(generator, "MXNET") and _mxnet.python and not text.startswith(NOT_IN_MXNET):
        close(ours, _mxnet.results(text), *generator.MXNET, "naive and MXNet", text)
        twins += 1
    if hasattr(generator, "TORCH") and _torch.python:
        theirs = generator.draw_torch(seed)
        if theirs is not None:
            both = f"{text}\n# --- and in PyTorch\n{theirs}"
            close(ours, _torch.results(theirs), *generator.TORCH, "naive and PyTorch", both)
            twins += 1
    return twins > 0
