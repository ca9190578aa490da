"""`d2lmini info`: the facts for a problem report on this machine; `--json` for programs.
`info --for FILE`: the names of MXNet that a program uses and that are missing here
(`compat/mxnet_alias/examine.py` finds them):

    old.ipynb: 1 of 27 names of MXNet are missing
      mxnet.image.imread (cell 3, line 2): left out, as all of MXNet's image operations

>>> from d2lmini.cli.info import facts
>>> print(*facts(), sep=", ")
d2lmini, place, python, system, packages, blas, cores, memory, gpus, engine, environment

Nothing else is imported: package metadata tells whether CuPy is installed, the library tells
whether CuPy finds a GPU.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

import d2lmini
from d2lmini import addons
from d2lmini.cli.files import CommandError, check_program

#: Packages that d2lmini and its extras use.
PACKAGES = """
    numpy psutil threadpoolctl jupyterlab ipywidgets anywidget matplotlib tqdm scikit-learn
    cupy-cuda12x cupy-cuda13x mpi4py onnx ml_dtypes
""".split()

#: Environment variables that change how the library computes begin so.
_SET_BY = ("D2LMINI_", "MXNET_", "OMP_", "OPENBLAS_", "MKL_", "CUDA_", "NCCL_", "CUPY_")
#: The facts about a BLAS.
_BLAS = ("internal_api", "version", "num_threads", "architecture")
#: The facts that are sizes in bytes.
_SIZES = {"total", "available", "resident", "limit", "free"}


def add_to(commands: Any) -> None:
    """Declare `info`."""
    parser = commands.add_parser(
        "info",
        help="print versions, BLAS, cores, memory and GPUs",
        description="What a report of a problem should say about this machine. With --for: which "
        "names of MXNet programs use that are missing here. Programs are read, not run; the exit "
        "status is 1 if a name is missing.",
    )
    parser.add_argument(
        "--for", dest="programs", nargs="+", metavar="FILE", help=".py or .ipynb files to read"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, sizes in bytes")
    parser.set_defaults(do=show)


def show(options: argparse.Namespace) -> int:
    """Print the facts, or what a program lacks; returns the exit status."""
    if options.programs:
        return show_names(options.programs, options.json)
    found = facts()
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            print(f"{name:<11}  {as_text(value)}")
    return 0


def facts() -> dict[str, Any]:
    """All facts as JSON values; None where the system does not tell."""
    import psutil
    import threadpoolctl

    from d2lmini import engine
    from d2lmini.device import devices

    memory = psutil.virtual_memory()
    return {
        "d2lmini": d2lmini.__version__,
        "place": str(Path(d2lmini.__file__).parent),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "blas": [
            {key: pool.get(key) for key in _BLAS}
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
            "limit": _number(_cgroup("memory.max")),
        },
        "gpus": [
            {"context": str(device.ctx), "name": str(device), "free": free, "total": total}
            for device in devices.gpus()
            for free, total in [device.ctx.memory_info()]
        ],
        "engine": {"kind": engine.current.kind, "workers": engine.stats().workers},
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(_SET_BY)},
    }


def as_text(value: Any) -> str:
    """A fact in a line.

    >>> as_text({"total": 3 << 29, "limit": None}), as_text([])
    ('total 1.5 GiB', 'none')
    """
    if isinstance(value, dict):
        known = {key: fact for key, fact in value.items() if fact is not None}
        sizes = {key: f"{known[key] / 2**30:.3g} GiB" for key in known.keys() & _SIZES}
        value = [f"{key} {fact}" for key, fact in {**known, **sizes}.items()]
        return ", ".join(value) or "none"
    if isinstance(value, list):
        return "; ".join(map(as_text, value)) or "none"
    return str(value)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _core_quota() -> float | None:
    """The number of cores whose time the container grants; None if there is no quota."""
    quota, period = map(_number, (_cgroup("cpu.max") or "max max").split())
    return quota / period if quota and period else None


def _cgroup(file: str) -> str:
    """A limit of the container (cgroups, version 2)."""
    try:
        return Path("/sys/fs/cgroup", file).read_text().strip()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


# -- the names that programs use -------------------------------------------------------------------


def show_names(paths: list[str], as_json: bool) -> int:
    """Read programs, and print what they lack; 1 if a name is missing, else 0."""
    for path in paths:
        check_program(path)
    try:
        found = {path: addons.find("examine")(path) for path in paths}
    except ValueError as problem:
        raise CommandError(problem) from None
    if as_json:
        print(json.dumps([{"file": path, **asdict(x)} for path, x in found.items()], indent=2))
    else:
        print("\n".join(describe_program(path, program) for path, program in found.items()))
    return int(any(program.missing for program in found.values()))


def describe_program(path: str, program: Any) -> str:
    """All about one program: a headline, and a paragraph for each name."""
    headline = f"{path}: {len(program.missing)} of {program.names} names of MXNet are missing"
    texts = [
        textwrap.fill(
            f"{name.name} ({'; '.join(dict.fromkeys(name.places))}): {name.reason}", 100,
            initial_indent="  ", subsequent_indent="    ",
        )
        for name in program.missing
    ]  # fmt: skip
    return "\n".join([headline, *texts])
