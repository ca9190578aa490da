"""Small programs and what each tells: run here or in the real MXNet, and kept beside one another.

A file of `data/small_programs/` holds programs like this one:

    ## push assigns the sum of a list
    kv = mx.kv.create('local')
    kv.init(3, nd.zeros(2))
    kv.push(3, [nd.ones(2), nd.ones(2)])
    out = nd.zeros(2)
    kv.pull(3, out)
    tell(out)
    => [2, 2] float32

Lines `=> ` are what MXNet 1.9.1 tells. Where this library differs on purpose, a line `! ` gives the
reason, and lines `-> ` are what this library tells. A program that ends in an error tells the
error's class; here the error may be of a subclass. Each program begins with fresh names of blocks,
the seed 0, and an empty folder in which it runs. Both interpreters import this module.

The programs of most files run in a process of their own (`tests/addons/compat`); those of Gluon,
the KVStore and autograd are tests of these folders (`TESTED_IN`), in the process of the tests.

python tests/tools/small_programs.py          # asks MXNet and writes its answers into the files
python tests/tools/small_programs.py --ours   # prints the programs that differ here, with no reason
"""

import contextlib
import importlib
import os
import random
import re
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

#: The files whose programs are rows of tests in these folders, where `check` runs them.
TESTED_IN = {
    "autograd": ("autograd",),
    "gluon": (
        "blocks", "cells", "data", "inside", "layers", "losses", "names", "parameters", "trainer",
        "training",
    ),
    "kvstore": ("kvstore",),
}  # fmt: skip

FOLDER = Path(__file__).resolve().parents[1] / "data" / "small_programs"


# -- in both interpreters --------------------------------------------------------------------------


def run(mx, code):
    """What a program tells: texts, and for an error a list of the names of its classes."""
    if mx.__name__ == "d2lmini":
        mx.install_as_mxnet()
        mx = importlib.import_module("mxnet")
    told = []

    def tell(*values):
        told.extend(show(mx, value) for value in values)

    def fails(call, *args, **options):
        """Tells the error of a call, or what the call returns."""
        try:
            tell(call(*args, **options))
        except Exception as error:
            told.append(classes(error))

    def warns(call, *args, **options):
        """Tells the classes of a call's warnings, and returns its result."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = call(*args, **options)
        told.append("warns " + (" ".join(w.category.__name__ for w in caught) or "nothing"))
        return result

    names = {"mx": mx, "np": np, "tell": tell, "fails": fails, "warns": warns, "os": os}
    names.update({name: getattr(mx, name) for name in ("nd", "autograd", "gluon", "init", "sym")})
    names.update(nn=mx.gluon.nn, rnn=mx.gluon.rnn, gdata=mx.gluon.data, gloss=mx.gluon.loss)
    names["__name__"] = "__program__"
    before = os.getcwd()
    with contextlib.suppress(mx.base.MXNetError):
        mx.nd.waitall()  # an error that nothing has waited for belongs to an earlier program
    with tempfile.TemporaryDirectory() as folder, mx.name.NameManager():
        os.chdir(folder)
        try:
            for seed in (np.random.seed, mx.random.seed, random.seed):
                seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(code, "<program>", "exec"), names)
                mx.nd.waitall()
        except Exception as error:
            told.append(classes(error))
        finally:
            os.chdir(before)
            mx.util.reset_np()
    return told


def classes(error):
    """The names of an error's classes, its own first."""
    return [kind.__name__ for kind in type(error).__mro__ if issubclass(kind, Exception)]


def show(mx, value):
    """A value as a text that does not depend on the library, with five digits of each number."""
    if isinstance(value, mx.nd.NDArray):
        return f"{show(mx, value.asnumpy().tolist())} {np.dtype(value.dtype).name}"
    if isinstance(value, mx.sym.Symbol):
        return "Symbol " + str(value.name)
    if isinstance(value, np.ndarray):
        return f"np {show(mx, value.tolist())} {value.dtype.name}"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, float):
        return f"{value + 0.0:.5g}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(show(mx, part) for part in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {show(mx, part)}" for key, part in value.items()) + "}"
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, str):
        return repr(re.sub(r"0x[0-9a-f]+", "0x", value))
    if isinstance(value, (bool, int, bytes)) or value is None:
        return repr(value)
    return str(value) if isinstance(value, mx.Context) else "a " + type(value).__name__


# -- here ------------------------------------------------------------------------------------------


class Program:
    """One program of a file: its title and code, what MXNet tells, and where we differ."""

    def __init__(self, file, title, lines):
        self.file, self.title = file, title
        marked = {mark: [] for mark in ("=> ", "-> ", "! ")}
        code = []
        for line in lines:
            mark = next((mark for mark in marked if line.startswith(mark)), None)
            (code if mark is None else marked[mark]).append(line[len(mark or "") :])
        self.code = "\n".join(code).strip() + "\n"
        self.told, self.ours, reason = marked.values()
        self.reason = " ".join(reason)

    @property
    def id(self):
        return f"{self.file}: {self.title}"

    def __repr__(self):
        return self.text()

    def expected(self):
        """What this library has to tell."""
        return self.ours if self.reason else self.told

    def text(self):
        """The program as its file has it."""
        lines = [f"## {self.title}", self.code.rstrip(), *(f"=> {line}" for line in self.told)]
        if self.reason:
            lines += [f"! {self.reason}", *(f"-> {line}" for line in self.ours)]
        return "\n".join(lines) + "\n"


def programs(only=""):
    """All programs, in the order of files and lines."""
    found = []
    for path in sorted(FOLDER.glob("*.txt")):
        _, *parts = re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.M)
        for part in parts:
            title, *lines = part.splitlines()
            found.append(Program(path.stem, title, lines))
    return [program for program in found if only in program.id]


#: Where MXNet refuses by a check without words, or by chance, we refuse with a class of ours.
CHANCE = ["AssertionError", "AttributeError", "JSONDecodeError", "UnboundLocalError"]
OURS = {"TypeError", "ValueError", "MXNetError"}


def agree(told, ours, strictly=False):
    """Is what was told here the text of the file? strictly: also in the classes of all errors."""

    def same(text, line):
        if not isinstance(line, list):
            return near(text, line)
        likewise = text in [f"raises {name}" for name in CHANCE] and OURS & set(line)
        return text in [f"raises {name}" for name in line] or bool(likewise and not strictly)

    return len(told) == len(ours) and all(map(same, told, ours))


NUMBER = re.compile(r"(-?(?:\d+\.?\d*(?:e[-+]\d+)?|inf|nan))")


def near(text, line):
    """Are two texts the same but for the last digits of numbers?"""
    parts, others = NUMBER.split(text), NUMBER.split(line)
    if parts[::2] != others[::2]:
        return False
    numbers, theirs = (np.array(each[1::2], float) for each in (parts, others))
    return np.allclose(numbers, theirs, rtol=1e-4, atol=1e-6, equal_nan=True)


def as_texts(told):
    """What was told, an error by its own class."""
    return [f"raises {line[0]}" if isinstance(line, list) else line for line in told]


def ask(oracle, program):
    """What a program tells in another process."""
    from oracle import OracleDied
    from small_programs import run  # as the other process imports it

    try:
        return oracle.ask(run, program.code)
    except OracleDied:
        return ["the process dies"]
    finally:
        if "amp.init()" in program.code:  # in MXNet there is no way back
            oracle.close()


def programs_of(file):
    """The programs of a file, as `rows.over` takes them."""
    return {file: [program for program in programs() if program.file == file]}


def check(program, told=None):
    """AssertionError unless a program tells, by default in this process, what its file says."""
    told = run_here(program) if told is None else told
    expected = program.expected()
    lines = "\n".join([*expected, "here:", *as_texts(told)])
    assert agree(expected, told), lines
    if program.reason:
        assert not agree(program.told, told), "it tells the same, without a reason"


def run_here(program):
    """What a program tells in this process, which then is as before."""
    from unittest import mock

    from generators.agree import as_mxnet

    import d2lmini

    with as_mxnet(), mock.patch.dict(d2lmini.optimizer.Optimizer.opt_registry):
        return run(d2lmini, program.code)


def write_answers():
    """Ask MXNet, and write its answers into the files."""
    from oracle import Oracle

    everything = programs()
    with Oracle("mxnet") as mxnet:
        for program in everything:
            program.told = as_texts(ask(mxnet, program))
    for path in sorted(FOLDER.glob("*.txt")):
        texts = [program.text() for program in everything if program.file == path.stem]
        head = re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.M)[0]
        path.write_text(head + "\n".join(texts), encoding="utf-8")


def print_differences(only=""):
    """Print each program that tells something else here."""
    from oracle import Oracle

    everything = programs(only)
    differ = 0
    with Oracle("d2lmini") as here:
        for program in everything:
            told = ask(here, program)
            if not agree(program.expected(), told):
                differ += 1
                lines = [f"   HERE {line}" for line in as_texts(told)]
                print("\n".join([program.text(), *lines, ""]))
    print(f"{len(everything) - differ} of {len(everything)} programs tell the same")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ours"]:
        print_differences(*sys.argv[2:])
    else:
        write_answers()
