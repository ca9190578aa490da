"""Run chapters with the library that is installed: do they run to their end, and do their asserts
hold? Nothing is compared and nothing stored.

    python tests/tools/run_chapters.py FOLDER [index hybridize ...]     # FOLDER/chapters/*.ipynb

Outputs are compared strictly on one reference environment (`make chapters`); elsewhere this is
what can be asked.
"""

import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError


def main(words: list[str]) -> int:
    folder, chosen = Path(words[0]) / "chapters", words[1:]
    paths = sorted(folder.glob("*.ipynb"))
    paths = [path for path in paths if not chosen or path.stem in chosen]
    if not paths:
        print(f"no chapter of {folder} is named so: {' '.join(chosen)}", file=sys.stderr)
        return 2
    failed = 0
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        begin_s = time.perf_counter()
        try:
            NotebookClient(
                notebook, kernel_name="python3", timeout=600,
                resources={"metadata": {"path": str(folder.resolve())}},
            ).execute()  # fmt: skip
        except CellExecutionError as error:
            failed += 1
            print(f"FAILED   {path.stem}\n{error}", flush=True)
            continue
        cells = sum(cell.cell_type == "code" for cell in notebook.cells)
        print(f"ok       {path.stem}: {cells} cells in {time.perf_counter() - begin_s:.0f} s")
    print(f"{len(paths) - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
