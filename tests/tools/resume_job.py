"""What `test_checkpoint.py` and `test_dist_resume.py` train, interrupt and go on with.

`resume_job.py kills FOLDER` trains once without a break; then again and again, killed (SIGKILL)
before each change that it makes in the file system, and after each it goes on from the checkpoint.
It prints where the bits came out differently, and at how many places it was killed.

`resume_job.py break FOLDER RANK NTH` is one process of a job, which trains without a break, and
then once more, when RANK is killed before its NTH change; `resume_job.py resume FOLDER` goes on
with the second. Both write what each rank came to: FOLDER/whole.RANK, FOLDER/broken.RANK.
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import numpy as np

from d2lmini import autograd, cpu, gluon, kvstore, nd, optimizer, random

X = np.random.default_rng(1).normal(size=(22, 3)).astype("float32")
Y = X.sum(axis=1, keepdims=True)
ALONE = (cpu(),)
STEPS = 9  # an epoch has 6 batches of 4


def net_of(contexts, seed=0, hybridize=False):
    """A net with all that is hard to continue: running means, and random numbers in every step."""
    net = gluon.nn.HybridSequential(prefix="n_")
    with net.name_scope():
        net.add(
            gluon.nn.Dense(5, activation="tanh"), gluon.nn.BatchNorm(), gluon.nn.Dropout(0.3),
            gluon.nn.Dense(1),
        )  # fmt: skip
    random.seed(seed)
    net.initialize("xavier", ctx=list(contexts))
    if hybridize:
        net.hybridize()
    return net


class Noisy(optimizer.Optimizer):
    """Gradient descent with noise, which is different on each device."""

    def update(self, index, weight, grad, state):
        self._update_count(index)
        noise = nd.random.normal(0, 0.1, weight.shape, weight.dtype, weight.context)
        weight -= self._get_lr(index) * grad + noise


class Job:
    """A training with checkpoints, built anew in each life of the program."""

    def __init__(
        self, folder, optimizer=("sgd", {"momentum": 0.9}), contexts=ALONE, hybridize=False,
        every=2, keep=2, options=None, sampler=None, **loading,
    ):  # fmt: skip
        np.random.seed(4)
        kind, attributes = optimizer
        attributes = {"learning_rate": 0.05, **attributes}
        if not isinstance(kind, str):
            kind, attributes = kind(**attributes), None
        self.contexts = list(contexts)
        self.net = net_of(contexts, hybridize=hybridize)
        self.trainer = gluon.Trainer(self.net.collect_params(), kind, attributes, **options or {})
        loading = loading if sampler is None else {**loading, "sampler": sampler}
        shuffle = {} if sampler is not None else {"shuffle": True}
        self.loader = gluon.data.DataLoader(
            gluon.data.ArrayDataset(X, Y), loading.pop("batch_size", 4), **shuffle, **loading
        )
        self.checkpoint = gluon.Checkpoint(folder, self.net, self.trainer, self.loader, keep)
        self.every = every
        self.step = 0

    def run(self, until=STEPS):
        """Go on, from a checkpoint if there is one; what all came to, as bytes."""
        self.step = self.checkpoint.restore() or 0
        while self.step < until:
            for x, y in self.loader:
                self.train(x, y)
                self.step += 1
                if self.step % self.every == 0:
                    self.checkpoint.save(self.step)
                if self.step == until:
                    break
        learnt = [p for p in self.net.collect_params().values() if p.grad_req != "null"]
        arrays = [a.asnumpy() for p in learnt for a in p.list_data()]
        drawn = [nd.random.uniform(shape=2).asnumpy(), np.random.rand(2)]
        return b"".join(a.tobytes() for a in arrays + drawn)

    def train(self, x, y):
        split = gluon.utils.split_and_load
        parts = zip(*(split(a, self.contexts, even_split=False) for a in (x, y)))
        with autograd.record():
            losses = [((self.net(a) - b) ** 2).sum() for a, b in parts]
        autograd.backward(losses)
        self.trainer.step(len(x))


def kill_at(nth, folder):
    """End this process before the nth change that it makes in `folder`."""
    made = 0

    def hook(event, arguments):
        nonlocal made
        if not arguments or not isinstance(arguments[0], (str, os.PathLike)):
            return
        if event == "open":
            changes = arguments[2] & (os.O_WRONLY | os.O_CREAT)
        else:
            changes = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")
        if changes and Path(arguments[0]).is_relative_to(folder):
            made += 1
            if made == nth:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def in_child(do):
    """The status of a process that does this, forked so that it need not import anything."""
    child = os.fork()
    if child == 0:
        try:
            do()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def kills(folder):
    """See this module."""
    gluon.Checkpoint, gluon.Trainer, gluon.data, gluon.nn  # imported here, once for all lives

    def live(name, nth=None):
        def do():
            if nth is not None:
                kill_at(nth, folder / name)
            (folder / f"{name}.bits").write_bytes(Job(folder / name, keep=1).run(4))

        return in_child(do)

    assert live("whole") == 0
    expected = (folder / "whole.bits").read_bytes()
    nth, different = 1, []
    while (status := live(f"life{nth}", nth)) != 0:
        assert os.WTERMSIG(status) == signal.SIGKILL
        again = live(f"life{nth}")
        if again != 0 or (folder / f"life{nth}.bits").read_bytes() != expected:
            different.append(nth)
        nth += 1
    print(json.dumps({"killed": nth - 1, "different": different}))


def train_as_rank(folder, name):
    """One training with other processes."""
    kv = kvstore.create("dist_sync")
    sampler = gluon.data.SplitSampler(len(X), kv.num_workers, kv.rank, seed=2)
    job = Job(folder / name, options={"kvstore": "dist_sync"}, sampler=sampler, batch_size=2)
    random.seed(10 + kv.rank)  # each drops out others
    (folder / f"{name}.{kv.rank}").write_bytes(job.run())


def break_(folder, who, nth):
    """See this module."""
    train_as_rank(folder, "whole")
    if kvstore.create("dist_sync").rank == int(who):
        kill_at(int(nth), folder / "broken")
    train_as_rank(folder, "broken")


def resume(folder):
    """See this module."""
    train_as_rank(folder, "broken")


if __name__ == "__main__":
    does = {"kills": kills, "break": break_, "resume": resume}[sys.argv[1]]
    does(Path(sys.argv[2]), *sys.argv[3:])
