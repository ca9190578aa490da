"""What the cells of a notebook print and show, kept for a copy of the notebook with its outputs.

    recorder = Recorder("old.ipynb")
    with recorder.cell(0, module):            # the first code cell
        ...                                   # runs as before, and prints as before
    recorder.write("executed.ipynb")

Text is kept while it is printed. Values are kept in all forms that IPython knows, where it is
installed, else as text. Figures of matplotlib that are open at the end of a cell are its pictures.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from d2lmini.base.scopes import contextmanager
from d2lmini.compat.mxnet_alias.failure import as_python_prints
from d2lmini.device import files


class Recorder:
    """The outputs of a notebook's code cells, in its own format (nbformat 4)."""

    def __init__(self, path: str):
        self.book = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        if "cells" not in self.book:
            raise ValueError(f"{path} has the old format 3: save it in Jupyter first")
        # What Jupyter wants, and not every notebook has.
        for part in (self.book, *self.book["cells"]):
            part.setdefault("metadata", {})
        self.book.setdefault("nbformat", 4)
        self.book.setdefault("nbformat_minor", 2)
        self.cells = [cell for cell in self.book["cells"] if cell["cell_type"] == "code"]
        for cell in self.cells:
            cell.update(outputs=[], execution_count=None)
        self.outputs: list[dict[str, Any]] = []

    @contextmanager
    def cell(self, index: int, module: ModuleType) -> Iterator[None]:
        """A scope in which outputs go to a code cell, too; an error that ends it is kept."""
        cell = self.cells[index]
        cell["execution_count"] = index + 1
        self.outputs = cell["outputs"]
        before = sys.stdout, sys.stderr, sys.displayhook

        def show(value: object) -> None:
            sys.stdout, tee = before[0], sys.stdout
            before[2](value)
            sys.stdout = tee
            if value is not None:
                self._add("execute_result", data=_forms(value), execution_count=index + 1)

        def display(*values: object) -> None:
            for value in values:
                print(repr(value), file=before[0])
                self._add("display_data", data=_forms(value))

        sys.stdout, sys.stderr = _Tee(before[0], "stdout", self), _Tee(before[1], "stderr", self)
        sys.displayhook = show
        vars(module)["display"] = display
        try:
            yield
            for picture in _open_figures():
                self._add("display_data", data={"image/png": picture})
        except BaseException as error:
            lines = as_python_prints(error).splitlines()
            cell["outputs"].append(
                {"output_type": "error", "ename": type(error).__name__, "evalue": str(error)}
                | {"traceback": lines}
            )
            raise
        finally:
            sys.stdout, sys.stderr, sys.displayhook = before

    def stream(self, name: str, text: str) -> None:
        """Add printed text to the last output, if that is of the same stream."""
        if self.outputs and self.outputs[-1].get("name") == name:
            self.outputs[-1]["text"] += text
        else:
            self.outputs.append({"output_type": "stream", "name": name, "text": text})

    def _add(self, kind: str, **entries: Any) -> None:
        self.outputs.append({"output_type": kind, "metadata": {}, **entries})

    def write(self, path: str) -> None:
        """Write the notebook with the outputs; OSError if the file cannot be written."""
        files.write(path, json.dumps(self.book, indent=1, ensure_ascii=False) + "\n")


class _Tee:
    """A stream that writes to another, and to the recorder."""

    def __init__(self, stream: TextIO, name: str, recorder: Recorder):
        self._stream, self._name, self._recorder = stream, name, recorder

    def write(self, text: str) -> int:
        self._recorder.stream(self._name, text)
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:  # flush, encoding, buffer, ...
        return getattr(self._stream, name)


def _forms(value: object) -> dict[str, Any]:
    """The value as {MIME type: content}."""
    if importlib.util.find_spec("IPython") is None:
        return {"text/plain": repr(value)}
    from IPython.core.formatters import DisplayFormatter

    forms, _ = DisplayFormatter().format(value)
    encoded = {
        kind: base64.b64encode(content).decode() if isinstance(content, bytes) else content
        for kind, content in forms.items()
    }
    return encoded | {"text/plain": repr(value)}


def _open_figures() -> list[str]:
    """The open figures of matplotlib as PNG, in base64; closes them."""
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    pictures = []
    for number in pyplot.get_fignums() if pyplot else ():
        content = io.BytesIO()
        pyplot.figure(number).savefig(content, format="png", bbox_inches="tight")
        pictures.append(base64.b64encode(content.getvalue()).decode())
        pyplot.close(number)
    return pictures
