"""The command line: `d2lmini COMMAND`, or `python -m d2lmini COMMAND`.

$ d2lmini lab                         # the chapters in JupyterLab, in a folder of your own
$ d2lmini assign auto-parallelism     # a chapter's exercises for a class
$ d2lmini run train.py --epochs 3     # an old MXNet program or notebook; its arguments follow
$ d2lmini launch -n 4 train.py        # four processes that train together
$ d2lmini info --json                 # versions, BLAS, cores, memory, GPUs

A command is a file of this folder: `add_to` declares its arguments, and names the function that
runs it and returns the exit status. `STATUS` explains every status; `--help` prints it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import d2lmini
from d2lmini.cli import assign, info, lab, programs
from d2lmini.cli.files import CommandError

#: The modules of the commands, in the order of `--help`.
COMMANDS = (lab, programs, info, assign)

#: The meaning of each exit status.
STATUS = """exit status:
  0    all went well
  1    the program failed (run, launch: its own status, if it has one), or lacks a name (info --for)
  2    it could not begin: the message says why, and what to do
  130  Ctrl-C
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status (see `STATUS`).

    `arguments` are the words after the program's name, by default those of this process.
    SystemExit, from argparse, if the words make no sense.
    """
    parser = argparse.ArgumentParser(
        _program_name(),
        description=(d2lmini.__doc__ or "").split("\n")[0],
        epilog=STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"d2lmini {d2lmini.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in COMMANDS:
        module.add_to(commands)
    options = parser.parse_args(arguments)
    try:
        status = options.do(options)
        sys.stdout.flush()
        return status
    except CommandError as problem:
        parser.error(f"{options.command}: {problem}")
    except KeyboardInterrupt:
        print(f"{options.command}: stopped by Ctrl-C", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of the output has closed it (`| head`). Python would report it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _program_name() -> str:
    """The command that started this program, for its messages."""
    return "d2lmini" if Path(sys.argv[0]).stem == "d2lmini" else "python -m d2lmini"
