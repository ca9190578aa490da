"""No folder has more lines of code than `size_budget.txt` gives it.

The library is to be compact, and it grows by small good reasons. A row of the budget is changed by
hand, in a commit that says why; `make size` shows each folder beside its row.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from size_table import BUDGET, ROOT, lines_of, read_budget


def over_budget(lines: dict[str, int], budget: dict[str, int]) -> list[str]:
    """What breaks the budget, a line each: a folder of the library that is too big or has no row, a
    row whose folder is gone. Folders of tests and chapters without a row count in their total."""
    problems = [
        f"{folder}: {lines[folder]} lines of code, the budget gives {budget[folder]}"
        for folder in lines
        if lines[folder] > budget.get(folder, lines[folder])
    ]
    problems += [
        f"{folder} has no row: give it one in size_budget.txt"
        for folder in lines
        if folder.startswith("d2lmini") and folder not in budget
    ]
    problems += [f"{folder} is gone: take its row out" for folder in budget if folder not in lines]
    return problems


def test_no_folder_is_over_its_budget():
    problems = over_budget(lines_of(ROOT), read_budget(BUDGET.read_text(encoding="utf-8")))
    assert not problems, "\n" + "\n".join(problems)


def test_the_rows_add_up():
    """The rows of the library's folders leave no room that its total does not have."""
    budget = read_budget(BUDGET.read_text(encoding="utf-8"))
    folders = [folder for folder in budget if folder.startswith("d2lmini") and folder != "d2lmini/"]
    assert sum(budget[folder] for folder in folders) == budget["d2lmini/"]


BUDGETS = {"d2lmini": 2, "d2lmini/engine": 3, "d2lmini/": 5, "tests/": 4, "chapters/": 9}


@pytest.mark.parametrize(
    ("path", "lines", "problem"),
    [
        ("d2lmini/engine/core.py", 2, None),
        ("d2lmini/engine/core.py", 3, "d2lmini/engine: 4 lines of code, the budget gives 3"),
        ("d2lmini/attic/old.py", 1, "d2lmini/attic has no row"),
        ("tests/attic/test_old.py", 4, "tests/: 5 lines of code, the budget gives 4"),
    ],
)
def test_each_fault_is_found(tmp_path: Path, path: str, lines: int, problem: str | None):
    files = {f"{top}/__init__.py": 1 for top in ("d2lmini", "d2lmini/engine", "tests", "chapters")}
    for name, count in {**files, path: lines}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('"""Doc."""\n' + "x = 1\n" * count, encoding="utf-8")
    found = over_budget(lines_of(tmp_path), BUDGETS)
    assert any(problem in line for line in found) if problem else found == []
