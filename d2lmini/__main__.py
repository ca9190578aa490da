"""The command line: `python -m d2lmini run FILE.py` and `python -m d2lmini info`.

$ python -m d2lmini run train.py --epochs 3     # an old MXNet program; its arguments follow
$ python -m d2lmini run chapter.ipynb           # a notebook, printed as a script would be
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
    commands.add_parser("info", help="print versions, BLAS and cores")
    options = parser.parse_args(arguments)
    if options.command == "info":
        print(info())
        return 0
    from d2lmini.mxnet_alias.runner import run as run_program

    if not os.path.isfile(options.file):
        parser.error(f"run: there is no file {options.file!r}")
    try:
        return run_program(options.file, options.args)
    except ValueError as problem:
        parser.error(f"run: {problem}")


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
