"""How many instructions hand-written kernels have, compiled by NVRTC for an H100, without a GPU.

    python tests/gpu/instructions.py [TREE ...]

TREE is the folder of another version of the library, to compare: the table has a row for each
kernel and each version. PTX is what NVRTC makes; SASS, what the GPU runs, is counted where there is
nvdisasm (pip install nvidia-cuda-nvdisasm). Counted is the text: a loop that the compiler left
counts once, however often it runs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests")]

PTX = re.compile(r"^\s+(?:@!?%p\d+\s+)?([a-z][\w.]*)\s[^;]*;", re.MULTILINE)
SASS = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)
#: The sizes of the image, of the windows, stride and padding: of LeNet's and ResNet's layers.
WINDOWS = [((32, 32), 3, 1, 1, 64), ((28, 28), 5, 1, 2, 6), ((32, 32), 3, 2, 1, 64)]


class Text(NamedTuple):
    """A kernel: what it does, its text, and the elements that a thread computes at once."""

    what: str
    source: str
    elements: int


def texts() -> list[Text]:
    """The kernels of the library that is imported here."""
    from d2lmini.cuda.kernels import launch, random_numbers, windows
    from d2lmini.ops.windows import geometry

    found: list[Text] = []
    n = 1 << 12

    def record(what: str, elements: int) -> None:
        def call(kernel: launch.Kernel, xp: object, size: int, *_: object, **__: object) -> None:
            found.append(Text(what, kernel.source, elements // size))

        launch.Kernel.__call__ = call  # type: ignore[method-assign, assignment]

    for dtype in ("float32", "float64"):
        for name, words in (("normal", "loc scale"), ("uniform", "low high")):
            record(f"{name} {dtype}", n)
            random_numbers.fill(np, name, (1,), np.empty(n, dtype), dict.fromkeys(words.split(), 1))
    for size, k, stride, pad, channels in WINDOWS:
        how = geometry(size, (k, k), (stride,) * 2, (1, 1), (pad,) * 2)
        image = np.empty((2, channels, *size), "float32")
        places = how.out[0] * how.out[1]
        columns = np.empty((2, channels * k * k, places), "float32")
        title = f"{k}x{k}, stride {stride}, {channels}x{size[0]}x{size[1]}"
        record(f"im2col {title}", 2 * channels * places)
        windows.im2col(np, image, columns, how)
        record(f"col2im {title}", image.size)
        windows.col2im(np, columns, image, how)
    return found


def disassembler() -> str | None:
    """nvdisasm, of the system or of a wheel; None where there is none."""
    wheels = importlib.util.find_spec("nvidia")
    folders = [] if wheels is None else wheels.submodule_search_locations or []
    found = [str(path) for folder in folders for path in Path(folder).glob("*/bin/nvdisasm")]
    return shutil.which("nvdisasm") or (found[0] if found else None)


def count(names: Sequence[str], begins: str) -> int:
    return sum(name.startswith(begins) for name in names)


def row(version: str, text: Text) -> str:
    """A row of the table."""
    from fakes import nvrtc

    ptx = PTX.findall(nvrtc.compiled(text.source, "compute_90").decode(errors="replace"))
    divisions = sum(bool(re.match(r"(div|rem)\.[su]", name)) for name in ptx)
    cells = [text.what, version, text.elements, len(ptx), count(ptx, "ld.global"),
             count(ptx, "st.global"), divisions]  # fmt: skip
    tool = disassembler()
    sass: list[str] = []
    if tool is not None:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(nvrtc.compiled(text.source, "sm_90") + b"\0")  # CuPy leaves out the last
            file.flush()
            listing = subprocess.run([tool, "-c", file.name], capture_output=True, text=True).stdout
        sass = [name for name in SASS.findall(listing) if name != "NOP"]
    cells += [len(sass), count(sass, "LDG"), count(sass, "STG")] if sass else ["–"] * 3
    return f"| {' | '.join(map(str, cells))} |"


def main(trees: Sequence[str]) -> None:
    """Print the table, of other versions first."""
    heads = "kernel | version | elements at once | PTX | loads | stores | integer divisions"
    print(f"| {heads} | SASS | loads | stores |", "| --- | --- |" + " ---: |" * 8, sep="\n")
    rows = []
    for version in (*trees, str(ROOT)):
        environment = {**os.environ, "PYTHONPATH": version}
        command = [sys.executable, __file__, "--texts"]
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        title = "this" if version == str(ROOT) else Path(version).name
        rows.append([row(title, Text(*text)) for text in json.loads(found.stdout)])
    for versions in zip(*rows, strict=True):
        print(*versions, sep="\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["--texts"]:
        print(json.dumps(texts()))
    else:
        main(sys.argv[1:])
