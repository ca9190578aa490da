"""Runs program texts in the real MXNet: what `mxnet_twin.py` starts in its interpreter.

Reads pickled texts from stdin, writes for each a pickled list of (dtype, shape, bytes), or the text
of the error. NumPy differs on the two sides, so no arrays travel.
"""

import os
import pickle
import sys
import traceback

import numpy as np


def main() -> None:
    """Answer the texts on stdin, one by one."""
    # MXNet's libraries write to stdout as they like, and so do programs; answers go to a copy.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (open to the end)
    while True:
        try:
            text = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = run(text)
        except Exception:
            answer = traceback.format_exc(limit=-3)
        pickle.dump(answer, answers, 2)
        answers.flush()


def run(text):
    import mxnet as mx
    from mxnet import autograd, gluon, init, nd

    kept = []

    def keep(value):
        array = np.ascontiguousarray(value.asnumpy() if hasattr(value, "asnumpy") else value)
        shape = np.shape(value) if not hasattr(value, "shape") else value.shape
        kept.append((array.dtype.str, shape, array.tobytes()))

    names = {"mx": mx, "nd": nd, "autograd": autograd, "gluon": gluon, "init": init}
    names.update(np=np, keep=keep, __name__="__generated__")
    exec(compile(text, "<generated>", "exec"), names)
    nd.waitall()
    return kept


if __name__ == "__main__":
    main()
