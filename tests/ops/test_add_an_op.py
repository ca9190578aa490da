"""One file declares an op and one row tests it: the guide's module and its row, put to every test
that goes by the table of rows, and run eagerly, recorded, compiled, from files and on a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "add-an-op.md").read_text(encoding="utf-8")
MODULE = re.search(r"```python\n# my_ops\.py\n(.*?)```", PAGE, re.S)[1]  # type: ignore[index]
ROW = re.search(r"```python\n(Case\(.*?)```", PAGE, re.S)[1]  # type: ignore[index]

#: A process of its own, whose registry has one op more. The module is imported before the tests
#: collect the rows, to which its row was added.
BY_ROWS = f"""
import sys
import numpy as np
import pytest
from op_rows import elemwise
from op_rows.case import Case, draw
import my_ops
elemwise.ROWS.append({ROW.strip()})
sys.exit(pytest.main(["-q", "-rs", "-p", "no:cacheprovider", "-k", "bump or every_op or say_why",
                      *sys.argv[1:]]))
"""


def run(code: str, folder: Path, *args: str) -> str:
    """What a program prints that can import the guide's module; an error if it fails."""
    (folder / "my_ops.py").write_text(MODULE, encoding="utf-8")
    (folder / "main.py").write_text(code, encoding="utf-8")
    places = [folder, ROOT, *(ROOT / name for name in ("tests", "tests/tools", "chapters"))]
    done = subprocess.run(
        [sys.executable, "main.py", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_its_row_puts_it_to_every_test_of_the_table(tmp_path):
    names = "test_ops test_autograd_ops test_ops_cupy test_devices test_export_mxnet".split()
    said = run(
        BY_ROWS,
        tmp_path,
        *[str(path) for name in names for path in (ROOT / "tests").rglob(f"{name}.py")],
    )
    assert int(re.search(r"(\d+) passed", said)[1]) >= 8, said  # type: ignore[index]
