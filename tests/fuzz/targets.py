"""The readers of files, how hostile files are made for each, and what it may do with them.

Each target writes the hostile bytes into a folder of its own, where the reader finds them, or hands
them over. A reader that works up to a second file (an archive's member) goes on with that.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import mutations
import numpy as np
import valid
from guard import Failure, Guard, Limits

from d2lmini import MXNetError, nd, num_gpus, optimizer, profiler, sym
from d2lmini.compat.mxnet_alias import runner
from d2lmini.gluon.data.vision import datasets
from d2lmini.gluon.utils import sha1_of
from d2lmini.ndarray import serialize
from d2lmini.ops.core import registry
from d2lmini.optimizer.lr_scheduler import FactorScheduler

num_gpus()  # asks for CuPy once, as arrays of a GPU in a file do
_OPS = sorted(registry)

Mutate = Callable[[Random, bytes, Sequence[bytes]], bytes]


class Target(NamedTuple):
    """A reader under fire.

    read(path, data)  gives it the file, or the bytes
    seeds             valid files
    mutate            how hostile ones are made of them
    limits            the most memory at once
    errors            what it may raise
    file              the name under which the file is written, which messages must hold; "" if the
                      reader gets bytes
    allowed           audit events that are its work
    """

    read: Callable[[str, bytes], Any]
    seeds: Sequence[bytes]
    mutate: Mutate
    limits: Limits
    errors: tuple[type[Exception], ...] = (MXNetError,)
    file: str = ""
    allowed: frozenset[str] = frozenset()


# -- parameters ------------------------------------------------------------------------------------


def _read_params(path: str, data: bytes) -> None:
    entries, names = serialize.load_frombuffer(data)
    assert len(names) in (0, len(entries))


def _load_arrays(path: str, data: bytes) -> None:
    found = nd.load(path)
    for array in found.values() if isinstance(found, dict) else found:
        array.wait_to_read()


# -- Symbols ---------------------------------------------------------------------------------------


#: What attributes of ops look like in files, and a few things that they never are.
_WORDS = (
    "0", "1", "2", "-1", "3", "0.5", "True", "False", "None", "(1,)", "(1, 0)", "(2, 2)", "(0, -1)",
    "(-1, 0, -4)", "()", "float16", "int32", "max", "sum", "both", "lstm", "NWC", "999999999999",
    "1e30", "nan", "(1000000000, 1000000000)", "", "x", "[", "\0",
)  # fmt: skip


def _mutate_symbol(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Often another op takes the place of one, with attributes that it has."""
    if random.random() < 0.5:
        return mutations.json_text(random, data, others)
    try:
        table = json.loads(data)
        row = random.choice(table["nodes"])
        name = random.choice(_OPS)
        row["op"] = name
        attributes = registry[name].attr_names
        if attributes:
            chosen = random.sample(attributes, random.randint(0, min(4, len(attributes))))
            row["attrs"] = {key: random.choice(_WORDS) for key in chosen}
        if random.random() < 0.5:
            row["inputs"] = [[random.randint(0, 3), 0, 0] for _ in range(random.randint(0, 4))]
    except (ValueError, TypeError, LookupError, RecursionError):
        return mutations.json_text(random, data, others)
    return json.dumps(table).encode()


def _load_symbol(path: str, data: bytes) -> None:
    """What is read must also be fit to be listed, shown, written again, and asked for shapes."""
    graph = sym.load(path)
    try:
        graph.list_arguments(), graph.list_outputs(), graph.list_auxiliary_states()
        graph.attr_dict(), repr(graph), len(graph.get_internals())
        again = sym.load_json(graph.tojson())
        graph.infer_type_partial()
        graph.infer_shape_partial()
    except MXNetError as error:
        raise MXNetError(f"{path}: {error}") from None
    assert len(again) == len(graph)


# -- states, structures, texts ---------------------------------------------------------------------


def _set_states(path: str, data: bytes) -> None:
    described = [name for name in (b"Adam", b"RMSProp") if b'"class": "' + name in data]
    schedule = FactorScheduler(3) if b"FactorScheduler" in data else None
    kind = described[0].decode() if described else "SGD"
    updater = optimizer.get_updater(optimizer.create(kind, lr_scheduler=schedule))
    before = updater.optimizer, dict(vars(updater.optimizer)), updater.states
    try:
        updater.set_states(data)
    except MXNetError:
        after = updater.optimizer, dict(vars(updater.optimizer)), updater.states
        assert after == before, "a refused file must change nothing"
        raise
    # The optimizer that came out still is one: it updates a weight that had no state.
    # (Numbers are taken as they are: some lead to no weights.)
    with contextlib.suppress(ArithmeticError, ValueError):
        updater("fresh", nd.ones((2, 3)), nd.ones((2, 3)))
    updater.get_states(dump_optimizer=True)


def _mutate_states(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Mostly the JSON text within is changed, and the file around it stays valid."""
    if random.random() < 0.3:
        return mutations.binary(random, data, others)
    try:
        entries, names = serialize.load_frombuffer(data)
        text = mutations.json_text(random, entries[0][0].tobytes())
        entries[0] = (np.frombuffer(text, np.uint8), (1, 0))
        return serialize.dumps(entries, names)
    except (MXNetError, ValueError, IndexError):
        return mutations.binary(random, data, others)


# -- checkpoints -----------------------------------------------------------------------------------


def _mutate_checkpoint(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[:1] + mutations.json_text(random, data[1:], others)


def _restore(path: str, data: bytes) -> None:
    """Its checksum is right: the file was made so."""
    root = os.path.join(os.path.dirname(path), "run")
    inside = Path(root) / "step-00000001"
    if not inside.exists():
        valid.checkpoint_of(root).save(1)
    if data[:1] == b"w":
        (inside / "whole.json").write_bytes(data[1:])
    else:
        (inside / "rank-0.json").write_bytes(data[1:])
        files = {p.name: sha1_of(p) for p in inside.iterdir() if p.stem != "whole"}
        whole = {"step": 1, "ranks": 1, "files": files}
        (inside / "whole.json").write_text(json.dumps(whole))
    try:
        valid.checkpoint_of(root).restore()
    except MXNetError as problem:
        assert "step-00000001" in str(problem)


# -- notebooks -------------------------------------------------------------------------------------


def _read_notebook(path: str, data: bytes) -> None:
    for cell in runner.read_cells(path):
        assert isinstance(cell.source, str)
        try:
            runner.to_python(cell, "cell")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # the program's own: shown as Python shows it, with status 1


# -- traces ----------------------------------------------------------------------------------------


def _load_trace(path: str, data: bytes) -> None:
    """What was read must also be fit to be asked; a file may lack the answer."""
    trace = profiler.load(path)
    for question in ("account", "waits", "memory"):
        with contextlib.suppress(MXNetError):
            str(getattr(trace, question)())


# -- data sets -------------------------------------------------------------------------------------


def _mutate_zipped(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Gzip files are changed outside, or inside with a right checksum; some are bombs."""
    if data[:2] != b"\x1f\x8b" or random.random() < 0.4:
        return mutations.binary(random, data, others)
    try:
        inside = gzip.decompress(data[:4096])[: 1 << 20]
    except Exception:
        return mutations.binary(random, data, others)
    if random.random() < 0.02:
        inside += bytes(random.choice((1 << 16, 1 << 22)))
    return gzip.compress(mutations.binary(random, inside, others), 1)


def _read_pair(path: str, data: bytes) -> None:
    """As whatever it is, and as images and labels of a set, of which it can't be both."""
    datasets.read_idx(path)
    with contextlib.suppress(MXNetError):
        datasets.read_labelled_images(path, path)


# -- all of them -----------------------------------------------------------------------------------

KIB = 1 << 10
#: A record of an empty array takes 20 bytes in a file and an array of NumPy's, 200, in memory.
_ARRAYS = Limits(64 * KIB, 24)
#: An NDArray is more, and the pool rounds small sizes up.
_ND_ARRAYS = Limits(256 * KIB, 160)
#: JSON: of two bytes, as "0,", an object in a list; a node of a graph is far longer.
_TREES = Limits(256 * KIB, 160)


_SYMBOLS = valid.symbols()

_binary: Mutate = mutations.binary
_json: Mutate = mutations.json_text

TARGETS: dict[str, Target] = {
    "params": Target(_read_params, valid.params(), _binary, _ARRAYS),
    "nd.load": Target(_load_arrays, valid.params(), _binary, _ND_ARRAYS, file="x.params"),
    "symbol": Target(_load_symbol, _SYMBOLS, _mutate_symbol, _TREES, file="x-symbol.json"),
    # The update behind it compiles a program of the library's own.
    "states": Target(
        _set_states, valid.states(), _mutate_states, _TREES, allowed=frozenset({"compile", "exec"}),
    ),
    "checkpoint": Target(
        _restore, valid.checkpoints(), _mutate_checkpoint, Limits(2048 * KIB, 160), file="bytes",
    ),
    "notebook": Target(
        _read_notebook, valid.notebooks(), _json, Limits(2048 * KIB, 600), (ValueError,), "x.ipynb",
        frozenset({"compile"}),
    ),
    "trace": Target(
        _load_trace, valid.traces(), mutations.structural, Limits(4096 * KIB, 400), (MXNetError,),
        "t.json",
    ),
    # A gzip file is read within the size of what it can hold: 1032 bytes for one.
    "idx": Target(
        _read_pair, valid.idx_files(), _mutate_zipped, Limits(128 * KIB, 3 * 1032), file="x-ubyte",
    ),
    "cifar": Target(
        lambda path, data: datasets.read_cifar(path), [bytes(3073), bytes(2 * 3073)], _binary,
        Limits(64 * KIB, 4), file="data_batch_1.bin",
    ),
    "image": Target(
        lambda path, data: datasets.read_image(path), valid.images(), _binary,
        Limits(2048 * KIB, 3 * datasets.MOST_PIXELS_PER_BYTE), file="x.png",
    ),
}  # fmt: skip


if not TARGETS["image"].seeds:  # there is no Pillow
    del TARGETS["image"]


class Run:
    """One target, ready to be fed: a folder, a guard, and the failures so far."""

    def __init__(self, name: str):
        self.target = TARGETS[name]
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self._temporary = tempfile.TemporaryDirectory(prefix="hostile-", dir=memory)
        self.folder = os.path.realpath(os.path.join(self._temporary.name, "in"))
        os.mkdir(self.folder)
        self.path = os.path.join(self.folder, self.target.file or "bytes")
        self.inputs = 0
        self.failures: dict[str, tuple[str, bytes]] = {}

    def __enter__(self) -> Run:
        self._data = os.environ.get("D2L_DATA")
        os.environ["D2L_DATA"] = self.folder
        with Guard(self.folder) as guard:  # what is imported lazily is imported now
            for seed in (*self.target.seeds, b"", b"\0", b"{}", b"[]"):
                self._judge(guard, seed)
        self.guard = Guard(self.folder, self.target.allowed)
        self.guard.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.guard.__exit__(*exc)
        if self._data is None:
            os.environ.pop("D2L_DATA", None)
        else:
            os.environ["D2L_DATA"] = self._data
        self._temporary.cleanup()

    def feed(self, data: bytes) -> Failure | None:
        """Give the reader these bytes. Of each kind of failure the shortest input is kept."""
        self.inputs += 1
        failure = self._judge(self.guard, data)
        if failure is not None:
            known = self.failures.get(failure.kind)
            if known is None or len(data) < len(known[1]):
                self.failures[failure.kind] = failure.words, data
        return failure

    def _judge(self, guard: Guard, data: bytes) -> Failure | None:
        target = self.target
        if target.file:
            os.makedirs(self.folder, exist_ok=True)
            with open(self.path, "wb") as file:
                file.write(data)
        return guard.judge(
            lambda: target.read(self.path, data),
            len(data),
            target.limits,
            target.errors,
            target.file,
        )
