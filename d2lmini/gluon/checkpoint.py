"""Checkpoints: a killed training resumes and gives the same bits as without interruption.

    checkpoint = gluon.Checkpoint("run1", net, trainer, loader)
    step = checkpoint.restore() or 0
    while step < num_steps:
                for X, y in loader:                   # an epoch, or the rest of a resumed epoch
            with autograd.record():
                l = loss(net(X), y)
            l.backward()
            trainer.step(X.shape[0])
            step += 1
            if step % 100 == 0:
                checkpoint.save(step)

A training that is killed at any moment, even within `save`, and started again gives the same bits.
A checkpoint holds everything that the next steps depend on but the gradients: so save between
two steps. Of parameters that differ between devices, such as
BatchNorm's running means, it holds those of the first device of rank 0. (A loop over epochs is `for
epoch in range(loader.epoch, num_epochs)`, after `restore`.)

        run1/step-00000100/net.params       parameters, also readable by `net.load_parameters`
                           trainer.states   the optimizer, its counts, states and schedule, also
                                            readable by `trainer.load_states`
                           rank-0.json      the random generators (d2lmini's, NumPy's, Python's)
                                            and the positions of the loaders, of each process
                           whole.json       written last: the SHA-1 of all other files

`save` writes these files to a folder `step-00000100.tmp` and renames the folder when all files are
on the disk. So a folder without `.tmp` is complete; older checkpoints are removed only afterwards.
No file is a pickle: reading the files runs no code.

**Several processes** (`kvstore="dist_sync"`) share one folder that all processes can access. Rank 0
writes the common state, every rank its generators and loaders, and all processes resume from the
newest step that rank 0 finds complete.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from d2lmini import kvstore as kv
from d2lmini import ndarray as nd
from d2lmini.base import MXNetError, callsite
from d2lmini.gluon.block import Block
from d2lmini.gluon.data.sampler import Sampler
from d2lmini.gluon.trainer import Trainer
from d2lmini.gluon.utils import sha1_of
from d2lmini.ops import random_state

#: Errors raised when numbers, texts or lists in a file are not the written ones.
_NOT_OURS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class Checkpoint:
    """The checkpoints of a training in `folder`, which is created if needed; see this module.

    net: a Block; trainer: the Trainer of its parameters; data: the DataLoader, or a list of
    DataLoaders (or of any objects with `state_dict` and `load_state_dict`). keep: number of
    checkpoints to keep, at least 1; None: all.

    Raises TypeError for data that cannot report its position, such as a sampler, which is ahead of
    the DataLoader by the batches in flight. Raises ValueError for keep below 1.
    """

    def __init__(
        self, folder: str | os.PathLike[str], net: Block, trainer: Trainer | None = None,
        data: Any = None, keep: int | None = 3,
    ):  # fmt: skip
        if keep is not None and keep < 1:
            raise ValueError(f"Checkpoint: keep is at least 1, or None for all; got {keep}")
        self._data = [] if data is None else data if isinstance(data, (list, tuple)) else [data]
        for item in self._data:
            if isinstance(item, Sampler) or not hasattr(item, "load_state_dict"):
                raise TypeError(f"Checkpoint: data is DataLoaders, got {type(item).__name__}")
        self.folder = Path(folder)
        self._net, self._trainer, self._keep = net, trainer, keep
        self._rank, self._ranks = 0, 1
        self._job: Any = None  # the store by which several processes agree
        # The step saved or restored last; -1 if there was none, None if not checked yet.
        self._last: int | None = None

    @property
    def steps(self) -> list[int]:
        """The steps that can be restored if their files are undamaged; the newest is last."""
        names = [path.name.removeprefix("step-") for path in self.folder.glob("step-*")]
        return sorted(int(name) for name in names if name.isdecimal())

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    # -- write -------------------------------------------------------------------------------------

    def save(self, step: int) -> None:
        """Write a checkpoint of this step, then remove old checkpoints beyond `keep`. Does nothing
        if this or a later step was saved or restored.

        Waits for all pushed operations. All processes of a job call `save` after the same step.
        Raises ValueError if the folder holds the checkpoints of another run (`restore` was not
        called). Raises OSError when the system refuses to write; earlier checkpoints are then
        unchanged.
        """
        step, last = int(step), self._last
        if last is not None and step <= last:
            return
        self._join()
        if last is None and self._rank == 0 and self.steps:
            raise ValueError(
                f"save: {str(self.folder)!r} holds the checkpoints of a run that came to step "
                f"{self.steps[-1]}: call restore() first to go on from there, or use another folder"
            )
        unfinished = self._path(step).with_suffix(".tmp")
        if self._rank == 0:
            for left in self.folder.glob("step-*.tmp"):  # left by a killed process
                shutil.rmtree(left)
            unfinished.mkdir(parents=True)
        self._meet()
        self._write(unfinished)
        self._meet()
        if self._rank == 0:
            self._finish(unfinished, step)
        self._last = step

    def _write(self, folder: Path) -> None:
        """Write this process's files."""
        if self._rank == 0:
            parameters = self._net._collect_params_with_prefix()
            nd.save(folder / "net.params", {n: p.list_data()[0] for n, p in parameters.items()})
            if self._trainer is not None:
                self._trainer.save_states(folder / "trainer.states")
        state = {
            "random": random_state.state_dict(),
            "numpy": random_state.numpy_state_dict(np.random.get_state(legacy=False)),
            "python": random.getstate(),
            "data": [loader.state_dict() for loader in self._data],
        }
        own = folder / f"rank-{self._rank}.json"
        own.write_text(json.dumps(state))
        _flush(own)

    def _finish(self, unfinished: Path, step: int) -> None:
        """Complete the checkpoint, once all files exist, and remove checkpoints beyond `keep`."""
        files = {path.name: sha1_of(path) for path in sorted(unfinished.iterdir())}
        whole = {"step": step, "ranks": self._ranks, "files": files}
        (unfinished / "whole.json").write_text(json.dumps(whole, indent=1))
        for path in (*unfinished.iterdir(), unfinished):
            _flush(path)
        if self._path(step).exists():
            self._remove(step)  # a damaged one, which `restore` has passed over
        unfinished.rename(self._path(step))
        _flush(self.folder)
        if self._keep is not None:
            for old in [other for other in self.steps if other <= step][: -self._keep]:
                self._remove(old)

    def _remove(self, step: int) -> None:
        # Rename first: a partly removed folder would count as a damaged checkpoint.
        path = self._path(step)
        shutil.rmtree(path.rename(path.with_suffix(".old.tmp")), ignore_errors=True)

    # -- read --------------------------------------------------------------------------------------

    def restore(self) -> int | None:
        """Restore the newest complete checkpoint and return its step; None if there is none.

        All processes of a job call `restore` before training. The net and the Trainer must be built
        as before; the parameters are initialized on their devices, otherwise they are put on the
        CPU. A checkpoint with a damaged file is skipped with a warning that names the file. Raises
        MXNetError if no complete checkpoint is left, or if the checkpoint was saved by another
        number of processes or DataLoaders, of another net, or changed since.
        """
        self._join()
        step = self._last = self._agree(self._newest() if self._rank == 0 else -1)
        if step < 0:
            return None
        folder = self._path(step)
        saved_by = json.loads((folder / "whole.json").read_text())["ranks"]
        if saved_by != self._ranks:
            raise MXNetError(
                f"restore: {str(folder)!r} was saved by {saved_by} processes, this job has "
                f"{self._ranks}: start as many, or read net.params and trainer.states in it by "
                "load_parameters and load_states, to resume with different bits"
            )
        try:
            self._net.load_parameters(folder / "net.params")
            if self._trainer is not None:
                self._trainer.load_states(folder / "trainer.states")
            self._restore_own(json.loads((folder / f"rank-{self._rank}.json").read_text()))
        except (MXNetError, AssertionError, OSError, *_NOT_OURS) as problem:
            raise MXNetError(
                f"restore: {str(folder)!r} is not of this net, Trainer and data, or save() did not "
                f"write it, although its checksums agree: {problem}"
            ) from problem
        return step

    def _restore_own(self, state: dict[str, Any]) -> None:
        """Restore the state of this process."""
        saved, here = len(state["data"]), len(self._data)
        assert saved == here, f"it was saved with {saved} DataLoaders, here are {here}"
        for loader, its in zip(self._data, state["data"]):
            loader.load_state_dict(its)
        # Last, because the steps above may have drawn random numbers.
        version, numbers, following = state["python"]
        if not isinstance(following, (float, type(None))):
            raise ValueError(f"Python's generator has {following!r:.100} in place of a number")
        random.setstate((version, tuple(numbers), following))
        random_state.set_numpy_state(state["numpy"])
        random_state.load_state_dict(state["random"])

    def _newest(self) -> int:
        """The step of the newest complete checkpoint; -1 if there is none at all."""
        problems: list[str] = []
        for step in reversed(self.steps):
            problem = _damage(self._path(step))
            if problem is None:
                for damage in problems:
                    callsite.warn(f"restore: {damage}; going on from step {step}")
                return step
            problems.append(problem)
        if problems:
            raise MXNetError(
                f"restore: no checkpoint in {str(self.folder)!r} is complete: {'; '.join(problems)}"
                ". Use another folder to begin anew"
            )
        return -1

    # -- the other processes -----------------------------------------------------------------------

    def _join(self) -> None:
        """Learn the rank of this process, and the number of processes."""
        if self._trainer is not None:
            self._trainer._prepare()
            store = self._trainer._kvstore
            self._rank, self._ranks = getattr(store, "rank", 0), getattr(store, "num_workers", 1)
        # The Trainer's store accepts only numbers as keys.
        if self._ranks > 1 and self._job is None:
            self._job = kv.create("dist_sync")

    def _meet(self) -> None:
        """Wait until all processes are here (a barrier)."""
        if self._job is not None:
            self._job.barrier()

    def _agree(self, step: int) -> int:
        """The step of rank 0, broadcast to all processes."""
        if self._job is not None:
            told = nd.array([step], dtype="int64")
            self._job.broadcast("checkpoint", told, told)
            step = int(told.asscalar())
        return step


def _damage(folder: Path) -> str | None:
    """The damage of a checkpoint, as text; None if it is complete."""
    path = folder / "whole.json"
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        int(whole["ranks"])
        for name, written in whole["files"].items():
            if Path(name).name != name:
                raise ValueError("not a file of this folder")
            path = folder / name
            found = sha1_of(path) if path.is_file() else None
            if found != written:
                return f"file {str(path)!r} is damaged: its SHA-1 is {found}, not {written}"
    except OSError as problem:
        return f"file {str(path)!r} cannot be read: {problem.strerror}"
    except _NOT_OURS:
        return f"file {str(path)!r} is damaged: expected JSON with the files' SHA-1"
    return None


def _flush(path: Path) -> None:
    """Force a file or folder to the disk (fsync)."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open folders
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
