"""Several processes go on after a kill: `gluon.Checkpoint` with `kvstore='dist_sync'`.

The jobs are those of `tools/resume_job.py`; what one process does is in `test_checkpoint.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import resume_job

from d2lmini.distributed import launch as launching

JOB = Path(resume_job.__file__)


def launched(n, *args):
    """One job's exit status, and all that it printed."""
    pytest.importorskip("mpi4py", reason="there is no mpi4py: pip install 'd2lmini[dist]'")
    try:
        launching._mpiexec()
    except ValueError as problem:
        pytest.skip(str(problem))
    done = subprocess.run(
        [sys.executable, "-m", "d2lmini", "launch", "-n", str(n), str(JOB), *map(str, args)],
        capture_output=True, text=True, timeout=100, cwd=JOB.parents[2],
        env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("n", "who", "nth"),
    [
        (2, 1, 3),  # rank 1 within its third checkpoint: rank 0 has begun it, and waits
        *(
            pytest.param(n, who, nth, marks=pytest.mark.stress)
            for n, who, nth in [(2, 0, 2), (2, 0, 10), (2, 0, 20), (2, 1, 2), (4, 2, 2)]
        ),
    ],
)
def test_a_job_goes_on_to_the_same_bits(n, who, nth, tmp_path):
    """Each rank to its own: running means and what is dropped out differ between them."""
    status, told = launched(n, "break", tmp_path, who, nth)
    assert status != 0 and f"rank {who} was killed" in told
    assert not list(tmp_path.glob("broken.*"))
    status, told = launched(n, "resume", tmp_path)
    assert status == 0, told
    bits = [
        [(tmp_path / f"{name}.{r}").read_bytes() for r in range(n)] for name in ("whole", "broken")
    ]
    assert bits[0] == bits[1], told
    assert len(set(bits[0])) == n
