"""Another library as an oracle: a process of an interpreter that has it.

    with Oracle("mxnet") as mxnet:
        mxnet.ask(experiment, 3)          # what experiment(mxnet, 3) returns there
        mxnet.results("keep(nd.ones(2))") # what a program keeps there

`ask` calls a function of the tests in the other process. A module that both interpreters can import
is imported there; of a test file, which imports more, the text of the function alone travels: it
knows `np`, and what it defines and imports itself. NumPy differs on the two sides, so arrays travel
as bytes (`oracle_process.dump`).

D2LMINI_MXNET_PYTHON and D2LMINI_TORCH_PYTHON name the interpreters; 'd2lmini' is this one, in a
process of its own. The fixture `mxnet` of `conftest.py` is the real MXNet for one test file.
"""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import oracle_process


class OracleError(Exception):
    """The other library refused; the words are the end of its traceback."""


class OracleDied(OracleError):
    """The other process ended before it answered. The next question gets a new process."""


class Oracle:
    """A running interpreter with 'mxnet', 'torch' or 'd2lmini'; it starts at the first question."""

    def __init__(self, library: str) -> None:
        named = os.environ.get(f"D2LMINI_{library.upper()}_PYTHON")
        self.library = library
        self.python = sys.executable if library == "d2lmini" else named
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, function: Callable, *arguments: Any) -> Any:
        """What `function(library, *arguments)` returns there; OracleError if it raises."""
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        answered = False
        try:
            oracle_process.dump((*address(function), arguments), process.stdin)
            fine, answer = pickle.load(process.stdout)
            answered = True
        except (EOFError, BrokenPipeError) as problem:
            raise OracleDied(f"the process of {self.library} died") from problem
        finally:
            if not answered:  # nor will it know what comes next
                self.close()
        if not fine:
            raise OracleError(answer)
        return answer

    def results(self, text: str) -> list[np.ndarray]:
        """What the program of this text keeps there; OracleError with the words of its error."""
        return self.ask(oracle_process.run_program, text)

    def _start(self) -> subprocess.Popen[bytes]:
        assert self.python, f"no interpreter is named for {self.library}"
        command = [self.python, "-W", "ignore", oracle_process.__file__, self.library]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def address(function: Callable) -> tuple[str, str, str]:
    """How the other process finds the function: its module, its name, or its own text."""
    alone = Path(inspect.getfile(function)).name.startswith("test_")
    text = textwrap.dedent(inspect.getsource(function)) if alone else ""
    return function.__module__, function.__name__, text
