"""Chapters have the shape that makes them work: ask, predict, run, explain, keep, try.

What is checked here can be seen without running a chapter; `make chapters` runs them.
"""

import ast
import json
import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
from execute_chapters import normalise
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
FIRST = "00-start-here"
#: Words, counting all that stands in Markdown, and code cells: of a kind of chapter, and of all.
LIMITS = {"first": (800, 8), "core": (2200, 22), "further": (2500, 26), "appendix": (1200, 12)}
ALL_WORDS, ALL_CELLS = 26_000, 250
CORE = range(1, 8)
MAX_CELL_LINES = 12
KINDS_OF_EXERCISES = ["Recall", "Predict", "Break it", "Build"]


def cells_of(path: Path, kind: str) -> list[str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


def text_of(path: Path) -> str:
    return "\n\n".join(cells_of(path, "markdown"))


def sections_of(path: Path) -> dict[str, str]:
    """Numbered heading -> its text."""
    parts = re.split(r"^## (\d+\. .*)$", text_of(path).split("\n## Summary")[0], flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def kind_of(path: Path) -> str:
    """A key of LIMITS."""
    if path.stem == FIRST:
        return "first"
    number = path.stem.partition("-")[0]
    return "appendix" if not number.isdigit() else "core" if int(number) in CORE else "further"


def size_of(path: Path) -> tuple[int, int]:
    """Words and code cells."""
    return len(text_of(path).split()), len(cells_of(path, "code"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_is_short(path):
    words, cells = size_of(path)
    most_words, most_cells = LIMITS[kind_of(path)]
    assert words <= most_words and cells <= most_cells, (words, cells)


def test_all_chapters_together_are_short():
    sizes = [size_of(path) for path in CHAPTERS]
    kinds = [kind_of(path) for path in CHAPTERS]
    assert (kinds.count("first"), kinds.count("core"), kinds.count("further")) == (1, 7, 4)
    assert sum(words for words, _ in sizes) <= ALL_WORDS
    assert sum(cells for _, cells in sizes) <= ALL_CELLS


PAGES = [path for path in CHAPTERS if kind_of(path) in ("first", "appendix")]


@pytest.mark.parametrize(
    "path", [p for p in CHAPTERS if p not in PAGES], ids=lambda path: path.stem
)
class TestShape:
    def test_every_section_asks_predicts_explains_keeps_and_exercises(self, path):
        sections = sections_of(path)
        assert len(sections) >= 3
        assert [int(heading.split(".")[0]) for heading in sections] == list(
            range(1, len(sections) + 1)
        )
        for heading, text in sections.items():
            assert heading.endswith("?"), heading
            parts = ["Your prediction.", "What happened.", "Keep."]
            places = [text.find(f"**{part}**") for part in parts]
            assert -1 not in places and places == sorted(places), (heading, places)
            assert "**Exercise.**" not in text or "<details>" in text, heading

    def test_it_closes_with_five_bullets_and_four_kinds_of_exercises(self, path):
        summary, exercises = text_of(path).split("\n## Summary\n")[1].split("\n## Exercises\n")
        assert len(re.findall(r"^- ", summary, flags=re.M)) == 5
        headings = re.findall(r"^### (.*)$", exercises, flags=re.M)
        assert len(headings) == len(KINDS_OF_EXERCISES)
        for heading, kind in zip(headings, KINDS_OF_EXERCISES):
            assert heading.startswith(kind)

    def test_folds_open_and_close(self, path):
        for text in cells_of(path, "markdown"):
            tags = re.findall(r"</?details>", text)
            assert tags == ["<details>", "</details>"] * (len(tags) // 2)
            # Without the blank lines JupyterLab shows the Markdown inside a fold as plain text.
            assert text.count("</summary>\n\n") == text.count("\n\n</details>") == len(tags) // 2

    def test_cells_are_short(self, path):
        for source in cells_of(path, "code"):
            assert len(source.splitlines()) <= MAX_CELL_LINES, source.splitlines()[0]

    def test_excerpts_of_the_library_are_what_stands_there(self, path):
        """A code block that begins with a file's name is found in that file to the letter."""
        blocks = re.findall(r"```python\n# (d2lmini/\S+\.py)\n(.*?)```", text_of(path), re.S)
        for file, code in blocks:
            assert code in (ROOT / file).read_text(encoding="utf-8"), f"{file} has changed"

    def test_answers_given_as_code_run(self, path):
        """Code in folded answers, after the chapter's imports and in the order it is printed."""
        first = cells_of(path, "code")[0]
        assert all(
            isinstance(line, (ast.Import, ast.ImportFrom, ast.Expr))
            for line in ast.parse(first).body
        )
        place: dict = {}
        with np.printoptions():
            exec(first, place)
            for fold in re.findall(r"<details>.*?</details>", text_of(path), re.S):
                for code in re.findall(r"```python\n(.*?)```", fold, re.S):
                    exec(code, place)

    def test_speed_is_left_to_verdicts(self, path):
        """No sentence says flatly that something is faster: it asks, it says "if" or it names the
        verdict, which is worked out where the chapter is run. Sources report what others found."""
        text = re.sub(r"^## Sources$.*?(?=^## |\Z)", "", text_of(path), flags=re.S | re.M)
        text = re.sub(r"<details>.*?</details>", "", text, flags=re.S)
        sentences = re.split(r"(?<=[.?!:;])\s+|\n\n", text)
        flat = [
            " ".join(sentence.split())
            for sentence in sentences
            if re.search(r"\b(faster|slower|quicker)\b", sentence)
            and not re.search(r"\?|\b([Ii]f|as long as|verdict|[Nn]o sentence)\b", sentence)
        ]
        assert not flat, flat


class TestExecute:
    """`make outputs` writes nothing of the machine into a chapter."""

    def test_normalise_keeps_outputs_and_drops_what_a_machine_adds(self):
        code = new_code_cell(
            "1 / 0",
            execution_count=1,
            metadata={"tags": ["raises-exception"], "execution": {"iopub.status.busy": "now"}},
            outputs=[
                new_output("stream", name="stdout", text="kept\n"),
                new_output(
                    "error",
                    ename="E",
                    evalue="e",
                    traceback=[f"File \x1b[32m{ROOT / 'd2lmini' / 'base.py'}:3\x1b[0m, in f"],
                ),
            ],
        )
        notebook = new_notebook(
            cells=[new_markdown_cell("text"), code],
            metadata={
                "widgets": {"state": 1},
                "language_info": {"name": "python", "version": "3.99.1"},
            },
        )
        ids = [cell.id for cell in notebook.cells]
        normalise(notebook)
        nbformat.validate(notebook)
        assert "widgets" not in notebook.metadata and "3.99" not in nbformat.writes(notebook)
        assert [cell.id for cell in notebook.cells] == ids
        assert notebook.cells[1].metadata == {"tags": ["raises-exception"]}
        stream, error = notebook.cells[1].outputs
        assert stream.text == "kept\n"
        assert error.traceback == [f"File \x1b[32m{Path('d2lmini/base.py')}:3\x1b[0m, in f"]
