"""A job of several processes on this machine: `python -m d2lmini launch -n 4 train.py --epochs 3`.

MPI's own launcher starts the processes. In addition this launcher

- gives each process its share of the cores, for BLAS and for the engine's workers; otherwise each
  process would start threads for all cores
- prefixes every line with the rank that printed it: `[2] loss 0.31`
- ends all processes when one fails, and says which one and how: by an exception, whose traceback is
  printed; by `sys.exit`; or by a signal, which the system sends when there is no more memory
- passes SIGTERM and SIGHUP on to the processes, which have `SAVE_S` to save their work and end

No process outlives the launcher: each watches it, and gets SIGTERM when the launcher is gone.

The exit status is 0 if all processes ended well. A process notes in a folder its id, and at its end
that it ended well: a process that is gone without this note was killed.

On several machines `mpiexec` or `srun` start the same program: see `distributed.dist`.
"""

from __future__ import annotations

import atexit
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from d2lmini.device import files
from d2lmini.distributed.mpi import world

#: Interval at which the processes are checked.
LOOK_S = 0.05
#: Time that the other processes have, when one is gone, to report errors.
GRACE_S = 3.0
#: Time that the processes have to end after SIGTERM.
SAVE_S = 20.0

_PASSED_ON = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_RANK = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_THREADS = [f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL")] + ["D2LMINI_CPU_WORKERS"]


def launch(n: int, file: str, args: Sequence[str] = ()) -> int:
    """Run `n` processes of the program `file`; returns the exit status. ValueError if no MPI
    launcher is found."""
    mpiexec = _mpiexec()
    handlers = {number: signal.getsignal(number) for number in _PASSED_ON}
    # Noted and not raised: an exception that comes up in a finalizer is lost.
    told: list[int] = []
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda number, frame: told.append(number))
    with tempfile.TemporaryDirectory() as folder:
        rank = [sys.executable, "-m", "d2lmini.distributed.launch", folder, str(os.getpid())]
        command = [*mpiexec, "-n", str(n), *rank, file, *args]
        job = subprocess.Popen(command, env=_environment(n))
        try:
            status = _watch(job, Path(folder), told)
            if told:
                status = 128 + told[0]
                if _call_ranks(Path(folder), lambda rank: rank.send_signal(told[0])) == n:
                    _wait(job, SAVE_S)
        except KeyboardInterrupt:
            status = 130
        finally:
            _end(job, Path(folder))
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return status


def _mpiexec() -> list[str]:
    """The launcher of the MPI beside this Python, or of the machine; with options that label lines
    and leave it to `_watch` to end the others when a process is gone."""
    here = str(Path(sys.executable).parent)
    found = shutil.which("mpiexec", path=here + os.pathsep + os.environ.get("PATH", ""))
    if found is None:
        raise ValueError("mpiexec was not found: pip install 'd2lmini[dist]' installs one")
    told = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
    if "Open MPI" in told or "OpenRTE" in told:
        return [found, "--oversubscribe", "--tag-output"]
    # Otherwise mpiexec ends all others before the first failure can be identified.
    return [found, "-prepend-rank", "-disable-auto-cleanup"]


def _environment(n: int) -> dict[str, str]:
    share = str(max(1, (os.cpu_count() or 1) // n))
    environment = {**dict.fromkeys(_THREADS, share), **os.environ}
    environment.pop("PYTHONUNBUFFERED", None)  # print whole lines
    return environment


def _watch(job: subprocess.Popen, folder: Path, told: list[int]) -> int:
    """Wait until the job ends, a process is gone that did not end well, or a signal came."""
    known: dict[str, psutil.Process | None] = {}
    while job.poll() is None and not told and not _find_failed(folder, known):
        time.sleep(LOOK_S)
    failed = [] if told else _find_failed(folder, known)
    if failed:
        _wait(job, GRACE_S)
        killed = "was killed, or left without ending its program"
        reasons = "; ".join(f"rank {rank} {_end_of(folder, rank) or killed}" for rank in failed)
        print(f"d2lmini: {reasons}. The job has ended", file=sys.stderr)
    return job.returncode or bool(failed)


def _find_failed(folder: Path, known: dict[str, psutil.Process | None]) -> list[str]:
    """The ranks that noted why they end, or that are gone without a note."""
    for path in folder.glob("*.pid"):
        if path.stem not in known:
            try:
                known[path.stem] = psutil.Process(int(path.read_text()))
            except psutil.NoSuchProcess:
                known[path.stem] = None
    said = [path for path in folder.glob("*.end") if path.read_text() != "well"]
    if said:  # the first failure: the others were ended because of it
        return [min(said, key=lambda path: path.stat().st_mtime_ns).stem]
    return [rank for rank, it in known.items() if _is_gone(it) and not _end_of(folder, rank)]


def _is_gone(process: psutil.Process | None) -> bool:
    try:
        return process is None or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _end_of(folder: Path, rank: str) -> str:
    """The rank's note about its end; empty if there is none yet."""
    path = folder / f"{rank}.end"
    return path.read_text() if path.exists() else ""


def _wait(job: subprocess.Popen, timeout_s: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        job.wait(timeout_s)


def _end(job: subprocess.Popen, folder: Path) -> None:
    """End all processes."""
    if job.poll() is None:
        job.send_signal(signal.SIGTERM)
        _wait(job, 2.0)
    if job.poll() is None:
        job.kill()
        job.wait()
    _call_ranks(folder, psutil.Process.kill)


def _call_ranks(folder: Path, act: Callable[[psutil.Process], object]) -> int:
    """Call `act` with each process of the job; returns how many there are."""
    found = 0
    for path in folder.glob("*.pid"):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process = psutil.Process(int(path.read_text()))
            if str(folder) in process.cmdline():
                act(process)
                found += 1
    return found


# -- one of the processes --------------------------------------------------------------------------


def run_rank(folder: Path, file: str, args: list[str]) -> None:
    """Run the program as one process of a job, and note in `folder` how it ends."""
    rank = next((os.environ[name] for name in _RANK if name in os.environ), "0")
    files.write(folder / f"{rank}.pid", str(os.getpid()))  # whole, or not at all
    end = folder / f"{rank}.end"
    atexit.register(files.write, end, "well")  # runs after all later registrations
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.argv = [file, *args]
    sys.path[0] = str(Path(file).resolve().parent)
    try:
        world()  # all join: processes with a KVStore must notice a process without one
        runpy.run_path(file, run_name="__main__")
    except SystemExit as request:
        if request.code:
            files.write(end, f"has left by sys.exit({request.code!r})")
            _end_all(request.code if isinstance(request.code, int) else 1, request.code)
    except BaseException as problem:
        what = f"{type(problem).__name__}: {problem}".split("\n")[0]
        files.write(end, f"has failed: {what}")
        traceback = problem.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename != file:
            traceback = traceback.tb_next  # frames above the program belong to this module
        problem.__traceback__ = traceback or problem.__traceback__
        sys.excepthook(type(problem), problem, problem.__traceback__)
        _end_all(1, None)


def _end_with(launcher: int) -> None:
    """End this process when the launcher is gone."""
    process = psutil.Process(launcher) if psutil.pid_exists(launcher) else None
    while not _is_gone(process):
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SAVE_S)
    os._exit(1)


def _end_all(status: int, said: object) -> None:
    """End the other processes, if the job has begun; then exit."""
    if isinstance(said, str):
        print(said, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.COMM_WORLD.Abort(status)
    os._exit(status)


if __name__ == "__main__":
    threading.Thread(
        target=_end_with, args=(int(sys.argv[2]),), name="d2lmini-launcher", daemon=True
    ).start()
    run_rank(Path(sys.argv[1]), sys.argv[3], sys.argv[4:])
