"""Runs program texts in another library: what `twin.py` starts in that one's interpreter.

Its argument is 'mxnet' or 'torch'. Reads pickled texts from stdin, writes for each a pickled list
of (dtype, shape, bytes), or the text of the error. NumPy differs on the two sides, so no arrays
travel.
"""

import os
import pickle
import sys
import traceback

import numpy as np


def main(names_of):
    """Answer the texts on stdin, one by one."""
    # Libraries write to stdout as they like, and so do programs; answers go to a copy.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (open to the end)
    while True:
        try:
            text = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = run(text, names_of())
        except Exception:
            answer = traceback.format_exc(limit=-3)
        pickle.dump(answer, answers, 2)
        answers.flush()


def mxnet():
    import mxnet as mx
    from mxnet import autograd, gluon, init, nd

    return {"mx": mx, "nd": nd, "autograd": autograd, "gluon": gluon, "init": init}


def torch():
    import torch

    torch.set_num_threads(1)
    return {"torch": torch, "F": torch.nn.functional}


def numbers(value):
    """An array of NumPy from one of any library."""
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        return value.detach().numpy()
    return value.asnumpy() if hasattr(value, "asnumpy") else value


def run(text, names):
    kept = []

    def keep(value):
        array = np.ascontiguousarray(numbers(value))
        shape = np.shape(value) if not hasattr(value, "shape") else tuple(value.shape)
        kept.append((array.dtype.str, shape, array.tobytes()))

    names.update(np=np, keep=keep, __name__="__generated__")
    exec(compile(text, "<generated>", "exec"), names)
    if "nd" in names:
        names["nd"].waitall()
    return kept


if __name__ == "__main__":
    main({"mxnet": mxnet, "torch": torch}[sys.argv[1]])
