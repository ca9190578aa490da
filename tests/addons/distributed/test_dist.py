"""Several processes train as one: `kvstore='dist_sync'`, and `python -m d2lmini launch`.

The jobs are those of `tools/dist_job.py`; here is what one process gets from the same data.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from dist_job import X, bits, train
from mpi_jobs import JOB, by_mpiexec, launched, needs_mpi
from worlds import until

from d2lmini import MXNetError, cpu, kvstore
from d2lmini.distributed import launch as launching


def trained(folder, n, **environment):
    """What each rank has found, and what was printed."""
    folder.mkdir()
    status, told = launched(n, "train", folder, **environment)
    assert status == 0, told
    return [json.loads((folder / f"{r}.json").read_text()) for r in range(n)], told


def floats(text):
    return np.frombuffer(bytes.fromhex(text), "float32")


@pytest.mark.parametrize("n", [1, 2, 4])
def test_k_processes_train_as_one_with_the_whole_batch(n, tmp_path):
    """To float32's accuracy; with what one process gets from as many devices, to the bit."""
    found, told = trained(tmp_path / "job", n)
    one = train(None, X)[0]
    k = train("local", X, [cpu(i) for i in range(n)], update_on_kvstore=False)[0]
    total = n * (n + 1) / 2
    for r, each in enumerate(found):
        assert (each["rank"], each["n"]) == (r, n)
        np.testing.assert_allclose(floats(each["trained"]), one, rtol=1e-5, atol=1e-6)
        assert each["trained"] == bits(k) == each["updated there"] == each["own store"]
        np.testing.assert_allclose(floats(each["two devices"]), one, rtol=1e-5, atol=1e-6)
        assert each["virtual GPUs"] == each["two devices"]
        assert each["buckets of a step"] == 1  # four parameters
        for ends, buckets, parts in each["wide"]:
            assert ends == [[-2.0 * (i + 1) * (n + 1) / 2] for i in range(24)]
            assert buckets == len(parts) == 7
            # Backward's order; the third and the sixth wait, and follow in forward's.
            last = [part[0] for part in parts]
            assert last == [23, 22, 14, 10, 2, 6, 18]
        assert each["unused"] == [-2.0, -1.0 / n]
        calls = each["calls"]
        assert calls["init"] == [[7.0] * 3, [[0.0] * 2] * 2]
        assert calls["push"] == [total + 10 * n] * 3
        assert calls["pushpull"] == [[2.0**n - 1] * 2] * 2
        assert calls["big"] == [n]
        # 12 arrays of 240 kB: one in the first bucket, then four in each that is full.
        assert calls["buckets"] == 4
        assert calls["updater"] == [[-float(n)] * 2] * 2
        assert f"[{r}] rank {r} is done" in told
        assert each["threads"] == str(max(1, (os.cpu_count() or 1) // n))
    assert all({**each, "rank": 0} == found[0] for each in found)


def test_the_same_job_twice_gives_the_same_bits(tmp_path):
    """On the serial engine, too, where nothing overlaps."""
    found = trained(tmp_path / "a", 2)[0]
    assert found == trained(tmp_path / "b", 2)[0]
    assert found == trained(tmp_path / "c", 2, D2LMINI_ENGINE="naive")[0]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("raise", ["ValueError: no more", "rank 1 has failed: ValueError: no more"]),
        ("kill", ["rank 1 was killed, or left without ending its program"]),
        ("exit", ["rank 1 has left by sys.exit(3)"]),
        ("_exit", ["rank 1 was killed, or left without ending its program"]),
        ("end", ["rank 1 has ended its program, while rank 0 waits for it to sum up"]),
        ("absent", ["rank 1 has ended its program, while rank 0 waits for it to begin with the"]),
        (
            "barrier",
            ["rank 1 is to wait at a barrier; rank 0 is to sum up for step(16) n_dense1_"],
        ),
        (
            "uneven",
            ["rank 1 is to sum up for step(7) n_", "rank 0 is to sum up for step(16) n_"],
        ),
        (
            "differ",
            ["on rank 1 n_dense0_bias, float32 (4,); on rank 0 n_dense0_bias, float32 (5,)"],
        ),
    ],
)
def test_a_process_that_fails_ends_the_job(how, says, tmp_path):
    status, told = launched(2, how, tmp_path)
    ended = time.time()
    assert status != 0, told
    assert status == 3 or how != "exit"
    for words in says:
        assert words in told
    assert ended - float((tmp_path / "failed").read_text()) < 10


def test_under_mpis_own_launcher_too_a_process_that_fails_ends_the_job(tmp_path):
    status, told = by_mpiexec(2, "raise", tmp_path)
    ended = time.time()
    assert status != 0, told
    assert "ValueError: no more" in told
    assert "rank 1 of 2 has failed, and with it the job" in told
    assert ended - float((tmp_path / "failed").read_text()) < 10


SAVES_WHEN_TOLD = """
import os, pathlib, signal, sys, time
from d2lmini import kvstore

if __name__ == "__main__":
    kv = kvstore.create("dist_sync")
    folder = pathlib.Path(sys.argv[1])
    told = []
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: told.append(number))
    (folder / f"{kv.rank}.new").write_text(str(os.getpid()))
    (folder / f"{kv.rank}.new").rename(folder / f"{kv.rank}.pids")
    while not told:
        time.sleep(0.01)
    (folder / f"{kv.rank}.saved").touch()
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are of Unix")
@pytest.mark.parametrize("how", ["SIGTERM", "SIGHUP", "SIGKILL"])
def test_no_process_outlives_the_launcher(how, tmp_path):
    """Whatever ends the launcher, the ranks can save first, and end."""
    needs_mpi()
    program = tmp_path / "p.py"
    program.write_text(SAVES_WHEN_TOLD)
    command = [sys.executable, "-m", "d2lmini", "launch", "-n", "2", str(program), str(tmp_path)]
    with (tmp_path / "log").open("w") as log:  # a pipe would stay open as long as any of them
        launcher = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=JOB.parents[2],
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # else as under nohup
        )  # fmt: skip
        until(lambda: len(list(tmp_path.glob("*.pids"))) == 2, 60)
        launcher.send_signal(getattr(signal, how))
        status = launcher.wait(60)
    assert status == (-9 if how == "SIGKILL" else 128 + getattr(signal, how))
    pids = [int(pid) for path in tmp_path.glob("*.pids") for pid in [path.read_text()]]
    assert len(pids) == 2
    until(lambda: not any(map(psutil.pid_exists, pids)), 60)
    assert len(list(tmp_path.glob("*.saved"))) == 2
    assert "was killed" not in (tmp_path / "log").read_text()


def test_the_launcher_refuses(monkeypatch, tmp_path, capsys):
    from d2lmini.__main__ import main

    program = tmp_path / "p.py"
    program.write_text("")
    monkeypatch.setattr(launching.shutil, "which", lambda *args, **options: None)
    for args, says in [
        (["-n", "2", str(program)], "launch: mpiexec was not found: pip install"),
        (["-n", "0", str(program)], "1 or more, got 0"),
        (["-n", "2", "nowhere.py"], "there is no file 'nowhere.py'"),
    ]:
        with pytest.raises(SystemExit):
            main(["launch", *args])
        assert says in capsys.readouterr().err


def test_without_mpi_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setattr(sys.modules["d2lmini.distributed.mpi"], "_world", None)
    with pytest.raises(MXNetError, match=r"need mpi4py and an MPI: pip install 'd2lmini\[dist\]'"):
        kvstore.create("dist_sync")
