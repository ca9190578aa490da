"""Checkpoints that were changed and signed again, so that all checksums are right.

Each is refused by `restore` with an MXNetError that names the folder, or it works: then training
goes on into the next epoch, and another checkpoint is saved. No other error, then or later.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import d2lmini
from d2lmini import MXNetError, autograd, cpu, gluon, nd
from d2lmini.gluon import checkpoint
from d2lmini.gluon import data as gdata
from d2lmini.ndarray import serialize

STEP = "step-00000002"
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 3, -700, 1.5, 1e300, float("nan"), 1 << 40, 1 << 70, -(1 << 70),
    "", "x", "cpu", "0", [], [1], ["x"], {}, {"a": 1}, [[None, 0]], [[["cpu", 0], 1]], {"is": 1},
]  # fmt: skip
#: Optimizer, its options, options of the Trainer, last_batch, shuffled.
KINDS: list[tuple[str, dict, dict, str, bool]] = [
    ("sgd", {"momentum": 0.9}, {}, "rollover", True),
    ("adam", {"lr_scheduler": "factor"}, {"update_on_kvstore": False}, "keep", True),
    ("lamb", {}, {"update_on_kvstore": False}, "discard", False),
    ("sgd", {}, {"compression_params": {"type": "2bit", "threshold": 0.01}}, "rollover", False),
]

_made: dict[int, Path] = {}


def draw(seed: int) -> str:
    """What `check` does with this seed, in words."""
    return f"checkpoint {seed % len(KINDS)}, changed with seed {seed}"


class Training:
    def __init__(self, kind: int, folder: Path):
        name, options, of_trainer, last_batch, shuffle = KINDS[kind]
        if "lr_scheduler" in options:
            options = {"lr_scheduler": d2lmini.lr_scheduler.FactorScheduler(2, 0.5)}
        d2lmini.random.seed(1)
        self.net = gluon.nn.HybridSequential(prefix="net_")
        self.net.add(gluon.nn.Dense(2, in_units=3), gluon.nn.BatchNorm(in_channels=2))
        self.net.initialize(ctx=[cpu(0), cpu(1)])
        self.trainer = gluon.Trainer(self.net.collect_params(), name, options, **of_trainer)
        data = gdata.ArrayDataset(np.arange(33, dtype="float32").reshape(11, 3))
        self.loader = gdata.DataLoader(data, 4, shuffle=shuffle, last_batch=last_batch)
        self.checkpoint = gluon.Checkpoint(folder, self.net, self.trainer, self.loader)

    def steps(self, most: int) -> None:
        """Some steps, into the next epoch; all generators are used."""
        np.random.normal(), random.gauss(0, 1), random.random(), nd.random.normal()
        while most > 0:
            for X in self.loader:
                parts = gluon.utils.split_and_load(X, [cpu(0), cpu(1)], even_split=False)
                with autograd.record():
                    losses = [(self.net(x) ** 2).sum() for x in parts]
                autograd.backward(losses)
                self.trainer.step(4)
                most -= 1
                if not most:
                    break
        nd.waitall()


def check(seed: int) -> bool:
    """False, because there is no twin. AssertionError if the changed checkpoint gives any error but
    the right one."""
    rng = random.Random(seed)
    kind = seed % len(KINDS)
    before = random.getstate(), np.random.get_state()
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            shutil.copytree(_valid(kind), Path(place, "run"))
            what = change(rng, Path(place, "run", STEP))
            _go_on(kind, Path(place, "run"), what)
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
            d2lmini.random.seed(0)
    return False


def _valid(kind: int) -> Path:
    if kind not in _made:
        _made[kind] = Path(tempfile.mkdtemp(), "run")
        training = Training(kind, _made[kind])
        training.steps(2)
        training.checkpoint.save(2)
    return _made[kind]


def _go_on(kind: int, folder: Path, what: str) -> None:
    training = Training(kind, folder)
    try:
        training.checkpoint.restore()
    except MXNetError as problem:
        assert str(folder) in str(problem), f"{what}: {problem}"
        return
    except Exception as problem:
        raise AssertionError(f"{what}: restore: {type(problem).__name__}: {problem}") from problem
    try:
        training.steps(5)
        training.checkpoint.save(7)
    except Exception as problem:
        raise AssertionError(f"{what}: {type(problem).__name__}: {problem}") from problem


# -- changes ---------------------------------------------------------------------------------------


def change(rng: random.Random, folder: Path) -> str:
    """Change one file and sign; what was changed, in words."""
    name = rng.choice(
        ["rank-0.json"] * 4 + ["trainer.states"] * 3 + ["net.params", "rank-0.params"]
    )
    if rng.random() < 0.05:
        name = "whole.json"
    path = folder / name
    if name.endswith(".json"):
        whole, words = _change_json(rng, json.loads(path.read_text()))
        path.write_text(json.dumps(whole))
    else:
        words = _change_arrays(rng, path)
    if name != "whole.json":
        files = {p.name: checkpoint._fingerprint(p) for p in folder.iterdir() if p.stem != "whole"}
        whole = {"step": 2, "ranks": 1, "files": files}
        (folder / "whole.json").write_text(json.dumps(whole))
    return f"{name}: {words}"


def _change_json(rng: random.Random, whole: Any) -> tuple[Any, str]:
    """Another value in place of one of its values, or one removed, added or moved."""
    at, path = [whole], [0]
    while isinstance(at[path[-1]], (list, dict)) and at[path[-1]] and rng.random() < 0.93:
        inner = at[path[-1]]
        keys = list(inner) if isinstance(inner, dict) else range(min(len(inner), 630))
        # The ends of long lists: of 625 numbers the last one is not like the others.
        path.append(keys[-1] if rng.random() < 0.2 else rng.choice(keys))
        at = inner
    key = path[-1]
    words = "/".join(map(str, path[1:]))
    how = rng.choice(["odd"] * 6 + ["drop", "add", "near"])
    if at is not whole and how == "drop" and path[1:]:
        del at[key]
        return whole, f"without {words}"
    if how == "add" and isinstance(at, list) and path[1:]:
        at.insert(key, rng.choice(ODD))
        return whole, f"more at {words}"
    value = rng.choice(ODD)
    if how == "near" and isinstance(at[key], (int, float)):
        value = rng.choice([-at[key], at[key] + 1, float(at[key]), str(at[key]), [at[key]]])
    at[key] = value
    return (value, f"{value!r}") if not path[1:] else (whole, f"{words} = {value!r}")


def _change_arrays(rng: random.Random, path: Path) -> str:
    entries, names = serialize.load(path)
    i = rng.randrange(len(entries))
    array, device = entries[i]
    words = f"{names[i] if names else i} {array.dtype.name} {array.shape}"
    if array.dtype == np.uint8 and rng.random() < 0.8:  # a description, in JSON
        inner = bytes(array)
        if inner[:1] == b"{":
            meta, more = _change_json(rng, json.loads(inner))
            array = np.frombuffer(json.dumps(meta).encode(), np.uint8)
            words = f"{words}: {more}"
    else:
        how = rng.choice(["dtype", "dtype", "shape", "shape", "values", "drop", "name", "twice"])
        words += f", {how}"
        if how == "dtype":
            array = array.astype(rng.choice(["float16", "float64", "int32", "uint8", "bool"]))
        elif how == "shape":
            array = rng.choice(
                [array[:-1], array.reshape(-1), array[None], array[..., None], array[:0], array[:1],
                 np.repeat(array, 2, 0)]
            )  # fmt: skip
        elif how == "values":
            array = array * array.dtype.type(0) + array.dtype.type(rng.choice([0, 1, 77]))
        elif how == "drop":
            del entries[i], names[i : i + 1]
        elif how == "name":
            names[i] = rng.choice(["x", "0 x", "residual x", "residual 9 9", "states 9", "1", ""])
        else:
            entries.append(entries[i])
            names.append(rng.choice(["x", "7 0.weight", "residual 0 9", "states 1", "99"]))
    if i < len(entries) and not words.endswith(", drop"):
        entries[i] = (np.ascontiguousarray(array), device)
    serialize.save(path, entries, names)
    return words
