"""MXNet's answers to all programs, as `data/nd_answers.json` has them.

D2LMINI_MXNET_PYTHON=.../python python tests/nd_rows/answers.py       # asks MXNet again
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
STORED = TESTS / "data" / "nd_answers.json"


def main() -> None:
    """Ask the real MXNet for every program and store its answers."""
    sys.path[:0] = [str(TESTS), str(TESTS / "tools")]
    from oracle import Oracle, OracleError

    import nd_rows

    answers = {}
    with tempfile.TemporaryDirectory() as folder, Oracle("mxnet") as mxnet:
        os.chdir(folder)  # programs write files
        for name in nd_rows.MODULES:
            for program in nd_rows.programs(importlib.import_module(f"nd_rows.{name}")):
                try:
                    answers[program] = mxnet.ask(nd_rows.answer, program)
                except OracleError as problem:
                    print(program, problem, sep="\n")
    lines = [f"{json.dumps(program)}: {json.dumps(told)}" for program, told in answers.items()]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
