"""Run chapters from top to bottom and store their outputs, so that diffs show what a change did.

    python tests/tools/execute_chapters.py [chapter.ipynb ...]      (make outputs)

What a reader should find, and nothing of the machine: no widget state, no clock times of cells, no
version of Python, no path in a traceback. A cell keeps its id for ever, wherever it moves. A
chapter that stops with an error it does not announce (tag `raises-exception`) is not written.
"""

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from d2lmini.d2l import load

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "chapters"))

from labs import reference

ROOT = Path(__file__).resolve().parents[2]
KEPT_CELL_METADATA = {"tags", "jupyter"}


def execute(notebook: nbformat.NotebookNode, folder: Path, chapter: str = "") -> None:
    """Run all cells in `folder`, with this checkout's library, and keep their outputs; what the
    comparisons of a chapter find becomes their reference (`chapters/labs/reference.py`)."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory() as temporary:
        measured = Path(temporary) / reference.FILE
        begin = load.snapshot(children=True)  # the kernels, too
        NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=600,
            resources={"metadata": {"path": str(folder)}},
            store_widget_state=False,
            coalesce_streams=True,
        ).execute(
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                "D2LMINI_REFERENCE": str(measured),
                "D2LMINI_CHAPTER": chapter,
            }
        )
        end = load.snapshot(children=True)
        if chapter:
            elsewhere = load.cores_elsewhere(begin, end)
            is_quiet = elsewhere is not None and elsewhere < load.LOADED
            # docs/teaching.md has it.
            row = {"found": f"{end.now_s - begin.now_s:.0f} s"} if is_quiet else {}
            reference.store(measured, chapter, "run", row)
            merge(folder / reference.FILE, measured)


def merge(path: Path, measured: Path) -> None:
    """Make the finds of a run, in `measured`, those of its chapters in the file at `path`. An empty
    row leaves the older find of its key; a find whose key the run did not meet is dropped."""
    kept = reference.read_file(path)
    for chapter, rows in reference.read_file(measured).items():
        older = kept.get(chapter, {})
        finds = {key: row or older.get(key) for key, row in rows.items() if row is not None}
        kept[chapter] = {key: row for key, row in finds.items() if row}
    reference.write_file(path, kept)


def normalise(notebook: nbformat.NotebookNode) -> None:
    """Leave only what every machine would write."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {k: v for k, v in cell.metadata.items() if k in KEPT_CELL_METADATA}
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                output.traceback = [without_places(line) for line in output.traceback]


def without_places(line: str) -> str:
    """A line of a traceback with paths below this checkout made relative, and others cut to their
    last two parts."""
    home = str(Path.home())
    for root in (str(ROOT), str(ROOT).replace(home, "~", 1)):
        line = line.replace(root + os.sep, "")
    return re.sub(
        r"(?:~|[A-Za-z]:)?(?:[\\/][\w.-]+)+[\\/]([\w.-]+[\\/][\w.-]+\.py)", r".../\1", line
    )


def main(argv: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("chapters", nargs="*", type=Path, help="default: chapters/*.ipynb")
    failed = 0
    for path in options.parse_args(argv).chapters or sorted((ROOT / "chapters").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        try:
            execute(notebook, path.resolve().parent, path.stem)
        except CellExecutionError as error:
            failed += 1
            print(f"{path.name}: not written, it stopped:\n{error}", file=sys.stderr)
            continue
        normalise(notebook)
        nbformat.write(notebook, path)
        print(f"{path.name}: {sum(c.cell_type == 'code' for c in notebook.cells)} cells run")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
