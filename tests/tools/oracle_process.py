"""Answers for another library: the program that `oracle.py` starts in the interpreter that has it.

Its argument is 'mxnet', 'torch' or 'd2lmini'. It reads pickled questions from stdin, (module, name,
text of the function or '', arguments), calls the function with the library and the arguments, and
writes (True, what it returned) or (False, the end of the traceback).
"""

import importlib
import operator
import os
import pickle
import sys
import traceback
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parent.parent


def main(library):
    """Answer the questions on stdin, one by one."""
    # Libraries write to stdout as they like, and so do programs; answers go to a copy.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (open to the end)
    sys.path[:0] = [str(TESTS), *([str(TESTS.parent)] if library == "d2lmini" else [])]
    while True:
        try:
            module, name, text, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = True, find(module, name, text)(importlib.import_module(library), *arguments)
        except Exception:
            answer = False, traceback.format_exc(limit=-3)
        dump(answer, answers)


def find(module, name, text):
    """The function that is asked for."""
    if not text:
        return getattr(importlib.import_module(module), name)
    scope = {"np": np, "__name__": module}
    exec(compile("from __future__ import annotations\n" + text, module, "exec"), scope)
    return scope[name]


class Pickler(pickle.Pickler):
    """Writes NumPy's arrays and scalars such that every version of NumPy reads them."""

    def reducer_override(self, value):
        if isinstance(value, np.ndarray):
            return np.ndarray, (value.shape, value.dtype.str, bytearray(value.tobytes()))
        if isinstance(value, np.generic):
            return operator.getitem, (np.asarray(value), ())
        return NotImplemented


def dump(value, stream):
    """Write one value for the other process."""
    Pickler(stream, 4).dump(value)
    stream.flush()


# -- programs --------------------------------------------------------------------------------------


def run_program(library, text):
    """What a program keeps: `generators/__init__.py` says which names it has."""
    kept = []
    names = {"np": np, "__name__": "__generated__"}
    names["keep"] = lambda value: kept.append(numbers(value))
    if library.__name__ == "torch":
        library.set_num_threads(1)
        names.update(torch=library, F=library.nn.functional)
    else:
        names["mx"] = library
        names.update({name: getattr(library, name) for name in ("nd", "autograd", "gluon", "init")})
    exec(compile(text, "<generated>", "exec"), names)
    if "nd" in names:
        names["nd"].waitall()
    return kept


def numbers(value):
    """A new array of NumPy from one of any library, or from a number."""
    if hasattr(value, "asnumpy"):
        return value.asnumpy()
    return np.array(value.detach() if hasattr(value, "detach") else value)


if __name__ == "__main__":
    main(sys.argv[1])
