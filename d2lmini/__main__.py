"""The command line: `python -m d2lmini run FILE.py`, `launch` and `info`.

$ python -m d2lmini run train.py --epochs 3     # an old MXNet program; its arguments follow
$ python -m d2lmini run chapter.ipynb           # a notebook, printed as a script would be
$ python -m d2lmini launch -n 4 train.py        # four processes that train together
$ python -m d2lmini info                        # versions, BLAS, cores: for a report
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence

import d2lmini


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(
        "python -m d2lmini", description=d2lmini.__doc__.split("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run a program or notebook written for MXNet 1.x",
        description="Run FILE with `import mxnet` (and d2lzh, the book's package) meaning d2lmini.",
    )
    run.add_argument("file", metavar="FILE", help="a .py or .ipynb file")
    run.add_argument("args", nargs=argparse.REMAINDER, help="the program's own arguments")
    launch = commands.add_parser(
        "launch",
        help="run a program as several processes of one job (kvstore 'dist_sync')",
        description="Run FILE as N processes on this machine; when one fails all are ended.",
    )
    launch.add_argument("-n", type=int, required=True, metavar="N", help="how many processes")
    launch.add_argument("file", metavar="FILE", help="a .py file")
    launch.add_argument("args", nargs=argparse.REMAINDER, help="the program's own arguments")
    commands.add_parser("info", help="print versions, BLAS and cores")
    options = parser.parse_args(arguments)
    if options.command == "info":
        print(info())
        return 0
    from d2lmini.launch import launch as start_job
    from d2lmini.mxnet_alias.runner import run as run_program

    command = options.command
    if not os.path.isfile(options.file):
        parser.error(f"{command}: there is no file {options.file!r}")
    if command == "launch" and options.n < 1:
        parser.error(f"launch: -n is the number of processes, 1 or more, got {options.n}")
    try:
        if command == "launch":
            return start_job(options.n, options.file, options.args)
        return run_program(options.file, options.args)
    except ValueError as problem:
        parser.error(f"{command}: {problem}")


def info() -> str:
    """Versions, BLAS, cores and the engine's dials, a line each."""
    import numpy
    import threadpoolctl

    from d2lmini import engine, runtime
    from d2lmini.device import devices

    blas = [
        f"{pool['internal_api']} {pool['version']}, {pool['num_threads']} threads"
        for pool in threadpoolctl.threadpool_info()
        if pool["user_api"] == "blas"
    ]
    lines = {
        "d2lmini": d2lmini.__version__,
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "NumPy": numpy.__version__,
        "BLAS": "; ".join(blas) or "unknown to threadpoolctl",
        "cores": str(os.cpu_count()),
        "system": platform.platform(),
        "engine": f"{engine.current.kind}, inline below {engine.current.inline_below:g} us",
        "GPUs": "; ".join(map(str, devices.gpus())) or "none",
        "features": " ".join(f.name for f in runtime.feature_list() if f.enabled),
    }
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


if __name__ == "__main__":
    sys.exit(main())
