"""docs/cluster.md: its program runs, its scripts are sound."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.S | re.M)


@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.stress)])
def test_the_program_comes_to_what_is_shown(n, tmp_path):
    """As one process, and as several."""
    pytest.importorskip("mpi4py", reason="there is no mpi4py: pip install 'd2lmini[dist]'")
    launcher = [] if n == 1 else ["-m", "d2lmini", "launch", "-n", str(n)]
    (program, *_), (shown,) = blocks("python"), blocks("text")
    (tmp_path / "train.py").write_text(program)
    done = subprocess.run(
        [sys.executable, *launcher, "train.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=100,
        env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
             "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown if n == 1 else f"[0] {shown}" in done.stdout
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert kept == ["step-00000060", "step-00000080", "step-00000100"]


TOLD = """
import signal

from d2lmini import autograd, gluon, nd

told = []
signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))

X = nd.array([[1, 2], [2, 1], [3, 5], [4, 2]])
y = nd.dot(X, nd.array([[1], [-2]]))
net = gluon.nn.Dense(1, in_units=2)
net.initialize()
loss = gluon.loss.L2Loss()
trainer = gluon.Trainer(net.collect_params(), "adam")

num_steps = 1_000_000
checkpoint = gluon.Checkpoint("checkpoints", net, trainer)
step = checkpoint.restore() or 0
print("goes on from step", step, flush=True)
while not told and step < num_steps:
    with autograd.record():
        l = loss(net(X), y)
    l.backward()
    trainer.step(len(X))
    step += 1
checkpoint.save(step)
print("saved step", step)
"""


@contextlib.contextmanager
def told(program, folder, last):
    """A job that is told to end when it has begun at step `last`."""
    (folder / "told.py").write_text(program)
    with subprocess.Popen(
        [sys.executable, "told.py"], cwd=folder, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as job:  # fmt: skip
        assert job.stdout.readline() == f"goes on from step {last}\n"
        job.send_signal(signal.SIGTERM)
        yield job


@pytest.mark.skipif(os.name == "nt", reason="SIGTERM is of Unix")
def test_a_job_that_is_told_to_end_goes_on(tmp_path):
    _, shown = blocks("python")
    assert all(line in TOLD for line in shown.splitlines() if "..." not in line)
    last = 0
    for _ in range(2):
        with told(TOLD, tmp_path, last) as job:
            last = int(job.stdout.readline().removeprefix("saved step "))
        assert job.returncode == 0
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert kept[-1].startswith(f"step-{last:08d}")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize("script", blocks("bash"))
def test_scripts_are_well_formed(script):
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
