"""gluon.Checkpoint: what was killed goes on to the same bits; what is damaged is passed over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import resume_job
from resume_job import Job, Noisy

from d2lmini import MXNetError, cpu, gluon, nd

TWO = (cpu(0), cpu(1))


def straight(tmp_path, **options):
    """What comes of a training without a break."""
    return Job(tmp_path / "straight", **options).run()


def interrupted(folder, *stops, **options):
    """What comes of it when it is begun anew after each of these steps."""
    for stop in stops:
        Job(folder, **options).run(stop)
    return Job(folder, **options).run()


# -- the same bits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hybridize": True, "num_workers": 2},
        {"optimizer": ("adam", {}), "contexts": TWO},
        {"contexts": TWO, "options": {"update_on_kvstore": False}},
        {"optimizer": (Noisy, {}), "last_batch": "rollover"},
    ],
    ids=str,
)
def test_it_goes_on_to_the_same_bits(options, tmp_path):
    """Within an epoch, after its last batch (6), within the next one; from the step that was saved
    last, when it was not the one that was reached (3, 9)."""
    expected = straight(tmp_path, **options)
    assert expected == interrupted(tmp_path / "a", 3, 6, 8, **options)
    assert expected == interrupted(tmp_path / "a", **options)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_killed_before_any_change_on_the_disk(tmp_path):
    tool = Path(resume_job.__file__)
    done = subprocess.run(
        [sys.executable, str(tool), "kills", str(tmp_path)],
        capture_output=True, text=True, timeout=100, cwd=tool.parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["different"] == [], done.stderr
    assert found["killed"] > 15


# -- which ones there are --------------------------------------------------------------------------


def test_older_ones_go(tmp_path):
    job = Job(tmp_path / "a", every=1, keep=3)
    job.run(5)
    assert job.checkpoint.steps == [3, 4, 5]
    job = Job(tmp_path / "c", every=1, keep=4)
    job.run(5)
    assert job.checkpoint.steps == [2, 3, 4, 5]
    job = Job(tmp_path / "b", every=1, keep=None)
    job.run(5)
    assert job.checkpoint.steps == [1, 2, 3, 4, 5]


def test_a_step_is_saved_once(tmp_path):
    job = Job(tmp_path, every=1, keep=2)
    job.run(2)
    before = (tmp_path / "step-00000002" / "whole.json").read_bytes()
    job.net[0].bias.set_data(nd.ones(5))
    job.checkpoint.save(2)
    assert (tmp_path / "step-00000002" / "whole.json").read_bytes() == before
    assert job.checkpoint.steps == [1, 2]


def test_what_a_killed_process_has_left_is_swept_up(tmp_path):
    left = tmp_path / "step-00000004.tmp"
    left.mkdir()
    (left / "net.params").write_text("half")
    job = Job(tmp_path)
    assert job.checkpoint.restore() is None
    job.run(2)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000002"]


# -- damage ----------------------------------------------------------------------------------------


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "harm", "says"),
    [
        ("net.params", cut, r"net\.params' is damaged: its SHA-1 is .*; going on"),
        ("net.params", flip, r"net\.params' is damaged: its SHA-1"),
        ("trainer.states", flip, r"trainer\.states' is damaged: its SHA-1"),
        ("rank-0.json", cut, r"rank-0\.json' is damaged: its"),
        ("rank-0.json", Path.unlink, r"rank-0\.json' is damaged: its SHA-1 is None"),
        ("whole.json", cut, r"whole\.json' is damaged: expected JSON"),
        ("whole.json", Path.unlink, r"whole\.json' cannot be read"),
    ],
)
def test_a_damaged_one_is_passed_over(name, harm, says, tmp_path):
    expected = straight(tmp_path)
    folder = tmp_path / "a"
    Job(folder).run(6)
    harm(folder / "step-00000006" / name)
    job = Job(folder)
    with pytest.warns(UserWarning, match=says + ".*going on from step 4" * ("going" not in says)):
        assert job.run() == expected
    assert job.checkpoint.steps == [6, 8]
    assert Job(folder).run() == expected


def test_none_is_whole(tmp_path):
    job = Job(tmp_path)
    job.run(4)
    for step in (2, 4):
        cut(tmp_path / f"step-0000000{step}" / "net.params")
    with pytest.raises(MXNetError, match=r"no checkpoint in .* is complete: .*04/net.*02/net"):
        job.checkpoint.restore()


# -- what is refused -------------------------------------------------------------------------------


def test_checkpoints_of_another_run_are_left_alone(tmp_path):
    Job(tmp_path).run(4)
    job = Job(tmp_path)
    with pytest.raises(ValueError, match=r"run that came to step 4: call restore\(\) first"):
        job.checkpoint.save(1)
    job.checkpoint.restore()
    job.checkpoint.save(3)  # does nothing
    assert job.checkpoint.steps == [2, 4]


def test_another_net_or_number_of_processes(tmp_path):
    Job(tmp_path).run(2)
    other = gluon.nn.Dense(3, in_units=3)
    other.initialize()
    with pytest.raises(MXNetError, match=r"not of this net.* is missing in file .*net\.params"):
        gluon.Checkpoint(tmp_path, other).restore()
    path = tmp_path / "step-00000002" / "whole.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "ranks": 4}))
    with pytest.raises(MXNetError, match="was saved by 4 processes, this job has 1: start as many"):
        Job(tmp_path).checkpoint.restore()


def test_other_devices_or_loaders(tmp_path):
    """One device goes on from what several have saved; other loaders do not."""
    options = {"contexts": TWO, "options": {"update_on_kvstore": False}}
    Job(tmp_path, **options).run(2)
    job = Job(tmp_path)
    assert job.checkpoint.restore() == 2
    with pytest.raises(MXNetError, match="was saved with 1 DataLoaders, here are 2"):
        gluon.Checkpoint(tmp_path, job.net, job.trainer, [job.loader] * 2).restore()


def test_a_failed_computation_is_not_saved(tmp_path):
    job = Job(tmp_path)
    job.run(2)
    job.net[0].bias.data()[:] = nd.random.normal(0, -1, shape=5)
    with pytest.raises(MXNetError):
        job.checkpoint.save(3)
    assert job.checkpoint.steps == [2]
