"""`d2lmini run FILE` and `d2lmini launch -n N FILE`: run a program, once or as several processes.

`compat/mxnet_alias/runner.py` and `distributed/launch.py` do the work; this file declares the
arguments, and refuses those that make no sense.
"""

from __future__ import annotations

import argparse
import os
import threading
from typing import Any

from d2lmini import addons
from d2lmini.cli import batch
from d2lmini.cli.errors import CommandError
from d2lmini.cli.files import check_program

#: The time that each program of a folder has, in seconds, if `--timeout` is not given.
FOLDER_TIMEOUT_S = 600.0


def add_to(commands: Any) -> None:
    """Declare `run` and `launch`."""
    parser = commands.add_parser(
        "run",
        help="run programs and notebooks written for MXNet 1.x",
        description="Run a program with `import mxnet` (and d2lzh, the book's package) meaning "
        "d2lmini. The exit status is the program's. Of a folder, run all programs, each in a "
        "process of its own and in its own folder, and say which of them failed, where and why; "
        "the exit status is 1 if one failed. Options come before FILE; after a notebook or a "
        "folder they may follow.",
    )
    _add_options(parser)
    parser.add_argument("file", metavar="FILE", help="a .py or .ipynb file, or a folder of them")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the program's own arguments")
    # The options once more, for those that follow a folder or a notebook.
    later = argparse.ArgumentParser(
        parser.prog, add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    _add_options(later)
    parser.set_defaults(do=run, later=later)

    parser = commands.add_parser(
        "launch",
        help="run a program as several processes of one job (kvstore 'dist_sync')",
        description="Run FILE as N processes on this machine; when one fails all are ended. "
        "The exit status is 0 if all ended well.",
    )
    parser.add_argument("-n", type=int, required=True, metavar="N", help="how many processes")
    parser.add_argument("file", metavar="FILE", help="a .py file")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the program's own arguments")
    parser.set_defaults(do=launch)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep-going",
        "--allow-errors",
        action="store_true",
        help="run all cells of a notebook, also after one that fails",
    )
    parser.add_argument(
        "--output", metavar="COPY", help="write the notebook with its outputs to a file COPY"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="S",
        help=f"end a program after S seconds; default: {FOLDER_TIMEOUT_S:g} in a folder, else none",
    )
    parser.add_argument(
        "--json", action="store_true", help="the summary as JSON, with tracebacks; times in s"
    )


def run(options: argparse.Namespace) -> int:
    """Run an old program or notebook, or those of a folder; returns the exit status."""
    path, is_folder = options.file, os.path.isdir(options.file)
    if is_folder or path.endswith(".ipynb"):
        _, options.args = options.later.parse_known_args(options.args, options)
    if options.timeout is not None and not 0 < options.timeout < threading.TIMEOUT_MAX:
        raise CommandError(f"--timeout is a number of seconds above 0, got {options.timeout:g}")
    if options.output and (not path.endswith(".ipynb") or options.timeout or options.json):
        raise CommandError("--output is for one notebook, without --timeout and --json")
    if options.output and not os.path.isdir(os.path.dirname(os.path.abspath(options.output))):
        raise CommandError(f"there is no folder for {options.output!r}")
    if is_folder:
        if options.args:
            raise CommandError(
                f"the programs of a folder get no arguments, got {' '.join(options.args)}"
            )
        timeout_s = options.timeout or FOLDER_TIMEOUT_S
        paths = batch.programs_in(path)
        return batch.run_all(paths, (), timeout_s, options.keep_going, options.json)
    check_program(path)
    if options.timeout is not None or options.json:
        return batch.run_all(
            [path], options.args, options.timeout, options.keep_going, options.json, alone=True
        )
    try:
        return addons.find("run")(path, options.args, options.keep_going, output=options.output)
    except (ValueError, OSError) as problem:
        raise CommandError(problem) from None


def launch(options: argparse.Namespace) -> int:
    """Run a job of several processes; 0 if all ended well."""
    if not os.path.isfile(options.file):
        raise CommandError(f"there is no file {options.file!r}")
    if options.n < 1:
        raise CommandError(f"-n is the number of processes, 1 or more, got {options.n}")
    try:
        return addons.find("launch")(options.n, options.file, options.args)
    except ValueError as problem:
        raise CommandError(problem) from None
