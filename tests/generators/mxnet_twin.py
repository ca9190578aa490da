"""The real MXNet as an oracle: a process of the interpreter that D2LMINI_MXNET_PYTHON names.

It is given program texts one by one and answers with what each kept, or with its error. A text that
crashes the process counts as an error; the next text gets a new process.
"""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

PYTHON = os.environ.get("D2LMINI_MXNET_PYTHON")


class MXNetError(Exception):
    """The real MXNet refused a program."""


class MXNet:
    """A running MXNet; `results(text)` is what a program keeps there."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def results(self, text: str) -> list[np.ndarray]:
        """What the program keeps in MXNet 1.9.1; MXNetError with the words of its error."""
        if self._process is None:
            assert PYTHON, "D2LMINI_MXNET_PYTHON names no interpreter"
            self._process = subprocess.Popen(
                [PYTHON, "-W", "ignore", str(Path(__file__).parent / "mxnet_process.py")],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump(text, process.stdin, 2)
            process.stdin.flush()
            answer: Any = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError) as problem:
            self.close()
            raise MXNetError("the process of MXNet died") from problem
        if isinstance(answer, str):
            raise MXNetError(answer)
        return [np.frombuffer(data, dtype).reshape(shape) for dtype, shape, data in answer]

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
