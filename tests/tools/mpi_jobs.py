"""Start a job of several processes by `d2lmini launch` or by MPI's own launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dist_job
import pytest

from d2lmini.distributed import launch as launching

JOB = Path(dist_job.__file__)


def needs_mpi():
    pytest.importorskip("mpi4py", reason="there is no mpi4py: pip install 'd2lmini[dist]'")
    try:
        launching._mpiexec()
    except ValueError as problem:
        pytest.skip(str(problem))


def launched(n, *args, job=JOB, folder=JOB.parents[2], **environment):
    """One job's exit status, and all that it printed; it runs in `folder`."""
    needs_mpi()
    done = subprocess.run(
        [sys.executable, "-m", "d2lmini", "launch", "-n", str(n), str(job), *map(str, args)],
        capture_output=True, text=True, timeout=100, cwd=folder,
        env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
             **environment},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def by_mpiexec(n, *args, **environment):
    """The same by MPI's own launcher, as on several machines."""
    needs_mpi()
    mpiexec, *options = launching._mpiexec()
    crowd = [option for option in options if option == "--oversubscribe"]
    python = [sys.executable, "-m", "mpi4py"]
    done = subprocess.run(
        [mpiexec, *crowd, "-n", str(n), *python, str(JOB), *map(str, args)],
        capture_output=True, text=True, timeout=100, cwd=JOB.parents[2],
        env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
             **environment},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr
