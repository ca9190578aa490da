"""Run the text of a program in a library and write down what it keeps, in either process."""

import contextlib
import io
import logging
import os
import random
import re
import signal
import types
import warnings

import numpy as np

#: A program that computes or waits longer ends the process: it counts as one that does not return.
COMPUTE_S, WAIT_S = 6, 60
QUIET = os.open(os.devnull, os.O_WRONLY)


def run(mx, text):
    """(what the program kept as (label, value) pairs, the end of its error or None)."""
    kept, error = [], None
    os.dup2(QUIET, 2)  # MXNet's own words
    names = {"mx": mx, "np": np, "__name__": "__sweep__"}
    for name in ("nd", "sym", "autograd", "gluon", "init"):
        names[name] = getattr(mx, name)
    names["keep"] = lambda label, value: kept.append((label, plain(value)))
    random.seed(0)
    np.random.seed(0)
    signal.setitimer(signal.ITIMER_PROF, COMPUTE_S)
    signal.alarm(WAIT_S)
    anew = getattr(mx, "name", mx.sym).NameManager()  # numbers in names begin at 0
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), anew:
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            exec(compile(text, "<sweep>", "exec"), names)
        except Exception as problem:
            error = f"{type(problem).__name__}: {str(problem)[:400]}"
        names.clear()
        with contextlib.suppress(Exception):
            mx.nd.waitall()
        mx.autograd.set_recording(False)
        mx.autograd.set_training(False)
    signal.alarm(0)
    signal.setitimer(signal.ITIMER_PROF, 0)
    return kept, error


def plain(value):
    """The value as any process can read it: arrays of NumPy, numbers, text, and lists of those."""
    if hasattr(value, "asnumpy"):
        return ["NDArray", value.asnumpy()]
    if isinstance(value, np.generic):  # as a number: which one NumPy's version decides
        value = value.item()
    if isinstance(value, np.ndarray):
        return ["numpy", value]
    if value is None or isinstance(value, (bool, int, float, complex)):
        return value
    if isinstance(value, str):
        return re.sub(r"0x[0-9a-f]+", "0x", value)
    if isinstance(value, (list, tuple, types.GeneratorType)):
        return [type(value).__name__, *map(plain, value)]
    if isinstance(value, dict):
        return ["dict", *sorted(([plain(k), plain(v)] for k, v in value.items()), key=str)]
    if isinstance(value, type) or callable(value):
        name = getattr(value, "__name__", type(value).__name__)
        return ["name", name.removesuffix("_")]  # NumPy's bool_ became bool
    return ["object", type(value).__name__]
