"""Another library as an oracle: a process of an interpreter that has it.

It is given program texts one by one and answers with what each kept, or with its error. A text that
crashes the process counts as an error; the next text gets a new process. Environment variables name
the interpreters: D2LMINI_MXNET_PYTHON and D2LMINI_TORCH_PYTHON.
"""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np


class TwinError(Exception):
    """The other library refused a program."""


class Twin:
    """A running interpreter with 'mxnet' or 'torch'; `results(text)` is what a program keeps."""

    def __init__(self, library: str) -> None:
        self.library = library
        self.python = os.environ.get(f"D2LMINI_{library.upper()}_PYTHON")
        self._process: subprocess.Popen[bytes] | None = None

    def results(self, text: str) -> list[np.ndarray]:
        """What the program keeps there; TwinError with the words of its error."""
        if self._process is None:
            assert self.python, f"no interpreter is named for {self.library}"
            script = str(Path(__file__).parent / "twin_process.py")
            self._process = subprocess.Popen(
                [self.python, "-W", "ignore", script, self.library],
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
            raise TwinError(f"the process of {self.library} died") from problem
        if isinstance(answer, str):
            raise TwinError(answer)
        return [np.frombuffer(data, dtype).reshape(shape) for dtype, shape, data in answer]

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
