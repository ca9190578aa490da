"""`d2lmini run FILE` and `d2lmini launch -n N FILE`: run a program, once or as several processes.

`compat/mxnet_alias/runner.py` and `distributed/launch.py` do the work; this file declares the
arguments, and refuses those that make no sense.
"""

from __future__ import annotations

import argparse
from typing import Any

from d2lmini import addons
from d2lmini.cli.files import CommandError, check_program


def add_to(commands: Any) -> None:
    """Declare `run` and `launch`."""
    parser = commands.add_parser(
        "run",
        help="run a program or notebook written for MXNet 1.x",
        description="Run a program with `import mxnet` (and d2lzh, the book's package) meaning "
        "d2lmini. Options come before FILE.",
    )
    parser.add_argument("file", metavar="FILE", help="a .py or .ipynb file")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the program's own arguments")
    parser.set_defaults(do=run)

    parser = commands.add_parser(
        "launch",
        help="run a program as several processes of one job (kvstore 'dist_sync')",
        description="Run FILE as N processes on this machine; when one fails all are ended.",
    )
    parser.add_argument("-n", type=int, required=True, metavar="N", help="how many processes")
    parser.add_argument("file", metavar="FILE", help="a .py file")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the program's own arguments")
    parser.set_defaults(do=launch)


def run(options: argparse.Namespace) -> int:
    """Run an old program or notebook; returns its exit status."""
    check_program(options.file)
    if options.file.endswith(".ipynb") and options.args:
        raise CommandError("a notebook gets no arguments; options come before FILE")
    try:
        return addons.find("run")(options.file, options.args)
    except (ValueError, OSError) as problem:
        raise CommandError(problem) from None


def launch(options: argparse.Namespace) -> int:
    """Run a job of several processes; 0 if all ended well."""
    check_program(options.file)
    if options.n < 1:
        raise CommandError(f"-n is the number of processes, 1 or more, got {options.n}")
    try:
        return addons.find("launch")(options.n, options.file, options.args)
    except ValueError as problem:
        raise CommandError(problem) from None
