"""`d2lmini info`: the facts for a problem report on this machine; `--json` for programs.
`info --for FILE` is in `names.py`.

>>> from d2lmini.cli.info import facts
>>> sorted(facts())[:5]
['blas', 'chapters', 'cores', 'd2lmini', 'engine']

Nothing else is imported: package metadata tells whether CuPy is installed, the library tells
whether CuPy finds a GPU.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import d2lmini
from d2lmini.cli import files, names

#: Packages that d2lmini uses, by the extra that installs them; "" is the library itself. CuPy has
#: many names.
PACKAGES = {
    "": "numpy psutil threadpoolctl",
    "lab": "jupyterlab ipywidgets anywidget matplotlib tqdm scikit-learn",
    "gpu": "cupy-cuda12x",
    "gpu13": "cupy-cuda13x",
    "dist": "mpi4py",
    "onnx": "onnx",
    "bfloat16": "ml_dtypes",
}

# Only the environment variables that change how the library computes.
_SET_BY = ("D2LMINI_", "MXNET_", "OMP_", "OPENBLAS_", "MKL_", "CUDA_", "NCCL_", "CUPY_")


def add_to(commands: Any) -> None:
    """Declare `info`."""
    parser = commands.add_parser(
        "info",
        help="print versions, BLAS, cores, memory, GPUs and limits",
        description="What a report of a problem should say about this machine. With --for: which "
        "names of MXNet a program uses that are missing here or work differently. The program is "
        "read, not run; the exit status is 1 if a name is missing.",
    )
    parser.add_argument(
        "--for",
        dest="program",
        metavar="FILE",
        help="a .py or .ipynb file, or a folder of them, to read",
    )
    parser.add_argument("--json", action="store_true", help="as JSON: sizes in bytes, times in s")
    parser.set_defaults(do=show)


def show(options: argparse.Namespace) -> int:
    """Print the facts, or what a program lacks; returns the exit status."""
    if options.program is not None:
        return names.show(options.program, options.json)
    found = facts()
    print(json.dumps(found, indent=2) if options.json else as_text(found))
    return 0


def facts() -> dict[str, Any]:
    """All facts as JSON values; None where the system does not tell."""
    import psutil
    import threadpoolctl

    from d2lmini import engine, runtime
    from d2lmini.engine.budget import default_limit

    stats, memory = engine.stats(), psutil.virtual_memory()
    return {
        "d2lmini": d2lmini.__version__,
        "place": str(Path(d2lmini.__file__).parent),
        "chapters": str(files.originals() / "chapters"),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": platform.platform(),
        "packages": {name: _version(name) for names in PACKAGES.values() for name in names.split()},
        "blas": [
            {key: pool.get(key) for key in ("internal_api", "version", "num_threads")}
            | {"architecture": pool.get("architecture")}
            for pool in threadpoolctl.threadpool_info()
            if pool["user_api"] == "blas"
        ],
        "cores": {
            "machine": os.cpu_count(),
            "process": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
            "quota": _core_quota(),
        },
        "memory": {
            "total": memory.total,
            "available": memory.available,
            "resident": psutil.Process().memory_info().rss,
            "limit": _memory_limit(),
        },
        "gpus": _gpus(),
        "engine": {
            "kind": engine.current.kind,
            "workers": stats.workers,
            "inline_below_us": engine.current.inline_below,
            "pending_limit": stats.limit_bytes or default_limit(),
        },
        "limits": {
            "open_files": _resource("RLIMIT_NOFILE"),
            "processes": _resource("RLIMIT_NPROC"),
            "switch_interval_s": sys.getswitchinterval(),
        },
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(_SET_BY)},
        "features": [f.name for f in runtime.feature_list() if f.enabled],
    }


def as_text(found: dict[str, Any]) -> str:
    """The facts as text, a line each."""
    memory, cores, engine, limits = (found[k] for k in ("memory", "cores", "engine", "limits"))
    versions = found["packages"]
    lines = {
        "d2lmini": f"{found['d2lmini']}, {found['place']}",
        "chapters": found["chapters"],
        "Python": found["python"],
        "NumPy": versions["numpy"] or "unknown",
        "BLAS": "; ".join(
            f"{b['internal_api']} {b['version']}, {b['num_threads']} threads"
            + (f", for {b['architecture']}" if b["architecture"] else "")
            for b in found["blas"]
        )
        or "unknown to threadpoolctl",
        **{
            name if extra else "beside it": ", ".join(
                f"{package} {versions[package] or '-'}"
                for package in names.split()
                if package != "numpy"
            )
            for extra, names in PACKAGES.items()
            for name in [f"  [{extra}]"]
        },
        "system": found["system"],
        "cores": f"{cores['machine']}"
        + (f", {cores['process']} for this process" if cores["process"] else "")
        + (f", {cores['quota']:g} at a time by its quota" if cores["quota"] else ""),
        "memory": f"{_size(memory['total'])}, {_size(memory['available'])} available, "
        f"{_size(memory['resident'])} ours"
        + (f", limit {_size(memory['limit'])}" if memory["limit"] else ""),
        "GPUs": "; ".join(
            f"{g['context']} {g['name']}, {_size(g['free'])} of {_size(g['total'])} free"
            for g in found["gpus"]
        )
        or "none",
        "engine": f"{engine['kind']}, {engine['workers']} workers, inline below "
        f"{engine['inline_below_us']:g} us, at most {_size(engine['pending_limit'])} pending",
        "limits": f"{limits['open_files'] or '?'} open files, {limits['processes'] or '?'} "
        f"processes, threads switch after {limits['switch_interval_s'] * 1e3:g} ms",
        "set": " ".join(f"{k}={v}" for k, v in found["environment"].items()) or "nothing",
        "features": " ".join(found["features"]),
    }
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpus() -> list[dict[str, Any]]:
    from d2lmini.device import devices

    found = []
    for device in devices.gpus():
        free, total = device.ctx.memory_info()
        found.append(
            {"context": str(device.ctx), "name": str(device), "free": free, "total": total}
        )
    return found


def _size(nbytes: int) -> str:
    """A size in the unit that leaves few digits: 1536 -> '1.5 KiB'."""
    size, units = float(nbytes), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.3g} {units[0]}"


def _resource(name: str) -> int | None:
    """A limit of this process; None if there is none, or no such limit on this system."""
    try:
        import resource

        soft, _ = resource.getrlimit(getattr(resource, name))
    except (ImportError, AttributeError, OSError):
        return None
    return None if soft == resource.RLIM_INFINITY else soft


def _memory_limit() -> int | None:
    """The lowest memory limit of container and shell for this process, in bytes."""
    import psutil

    said = [_resource("RLIMIT_AS")]
    for file in ("memory.max", "memory/memory.limit_in_bytes"):  # cgroups, version 2 and 1
        text = _cgroup(file)
        said.append(int(text) if text.isdigit() else None)
    # A container without a limit reports a number beyond all memory.
    limits = [limit for limit in said if limit and limit < psutil.virtual_memory().total]
    return min(limits, default=None)


def _core_quota() -> float | None:
    """The number of cores whose time the container grants; None if there is no quota."""
    quota, _, period = _cgroup("cpu.max").partition(" ")
    if not quota:
        quota, period = _cgroup("cpu/cpu.cfs_quota_us"), _cgroup("cpu/cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _cgroup(file: str) -> str:
    try:
        return (Path("/sys/fs/cgroup") / file).read_text().strip()
    except OSError:
        return ""
