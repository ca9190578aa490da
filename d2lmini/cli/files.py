"""The location of the chapters, and a copy of them that belongs to the reader.

    tree/chapters, tree/img, tree/docs          a clone of the repository
    site-packages/d2lmini/book/chapters, ...    a wheel (pyproject.toml puts them there)

A chapter shows `../img/NAME.svg`, and links to `../docs/grading.md` and to files of the library. So
a copy has the folders `chapters`, `img`, `docs` and `d2lmini` side by side, the last as a link to
the library in use.

The notebooks of a copy have no outputs: a section asks for a prediction, and the stored output of
the next cell would answer it. What a cell prints appears when the reader runs it. The explanation
below tells the answer, too: it is folded, and the reader opens it after the run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import d2lmini
from d2lmini.device.files import write

PACKAGE = Path(d2lmini.__file__).parent
#: What is copied beside the notebooks.
BESIDE = (
    "chapters/labs/*.py", "chapters/traces/*", "chapters/reference.json", "img/*.svg", "docs/*.md",
)  # fmt: skip

#: "What happened." and its paragraph; up to the rule to keep, if the rule comes before the exercise
#: and the next prediction.
EXPLANATION = re.compile(
    r"""^\*\*What\ happened\.\*\*\ (
        (?: (?! ^\*\*(?:Exercise|Your\ prediction)\. ) . )* ^\*\*Keep\. (?: (?! \n\n ) . )*
        | (?: (?! \n\n ) . )* )""",
    re.M | re.S | re.X,
)


class CommandError(Exception):
    """A command cannot begin: the message says what is missing or wrong, and what to do."""


def tree() -> Path | None:
    """The repository's root, if the library runs from a clone of it."""
    root = PACKAGE.parent
    here = (root / "pyproject.toml").is_file() and (root / "chapters").is_dir()
    return root if here else None


def originals() -> Path:
    """The folder that has `chapters` and `img`."""
    return tree() or PACKAGE / "book"


def chapter_name(path: Path) -> str:
    """The name of a chapter without the number that its file begins with."""
    return re.sub(r"^(?:\d\d|appendix)-", "", path.stem)


def find_chapter(name: str) -> Path:
    """The notebook of a chapter by its name, with or without the number that it begins with."""
    chapters = sorted((originals() / "chapters").glob("*.ipynb"))
    for path in chapters:
        if name in (path.stem, chapter_name(path)):
            return path
    known = ", ".join(map(chapter_name, chapters))
    raise CommandError(f"there is no chapter {name!r}; there are {known}")


def copy(folder: Path) -> str:
    """Copy the chapters into `folder`, which is created if missing; returns the message to print.

    The outputs of notebooks are left out, and explanations of them are folded. An existing file
    belongs to the reader: it is not changed. Refused if `folder` is a file or cannot be written.
    """
    source = originals()
    chapters = sorted((source / "chapters").glob("*.ipynb"))
    if not chapters:
        raise CommandError(f"the chapters are not at {source}: install d2lmini anew")
    others = [path for kind in BESIDE for path in sorted(source.glob(kind)) if path.is_file()]
    copied = 0
    try:
        for path in [*chapters, *others]:
            target = folder / path.relative_to(source)
            if target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            content = path.read_bytes()
            write(target, content if path in others else _before_the_run(content))
            copied += path in chapters
        _library_beside(folder)
    except OSError as problem:
        said = f"{folder} is no folder to write to: {problem.strerror}; name another"
        raise CommandError(said) from None
    told = f"{copied} chapters copied to {folder / 'chapters'}"
    kept = len(chapters) - copied
    return f"{told}; {kept} were there, and are as you left them" if kept else told


def _before_the_run(content: bytes) -> bytes:
    """A notebook as its reader begins: without outputs, explanations folded, with the description
    of this Python's kernel."""
    notebook = json.loads(content)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
        else:
            cell["source"] = fold_explanation("".join(cell["source"])).splitlines(keepends=True)
    _name_kernel(notebook["metadata"])
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()


def fold_explanation(text: str) -> str:
    """The Markdown of a cell, with the explanation of what happened folded, and the rule to keep
    if it follows. The exercise and the next prediction stay in sight."""
    found = EXPLANATION.search(text)
    if not found:
        return text
    fold = f"<details><summary>What happened</summary>\n\n{found[1]}\n\n</details>"
    return text[: found.start()] + fold + text[found.end() :]


def _name_kernel(metadata: dict[str, Any]) -> None:
    """Describe this Python's kernel, as JupyterLab does when it opens a notebook: JupyterLab calls
    a notebook unsaved whose description differs. Without a kernel do nothing."""
    own = metadata["kernelspec"]
    try:
        from ipykernel.ipkernel import IPythonKernel
        from jupyter_client.kernelspec import KernelSpecManager

        spec = KernelSpecManager().get_kernel_spec(own["name"])
    except (ImportError, KeyError):
        return
    own |= {"display_name": spec.display_name, "language": spec.language}
    metadata["language_info"] = IPythonKernel.language_info


def _library_beside(folder: Path) -> None:
    """Link to the library's files in use, for the chapters' links, or copy them where the system
    allows no link."""
    target = folder / "d2lmini"
    if target.exists() or target.is_symlink():
        return
    try:
        target.symlink_to(PACKAGE, target_is_directory=True)
    except (OSError, NotImplementedError):
        shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__", "book"))


def environment() -> dict[str, str]:
    """The environment for a child process: in a clone that is not installed it must find the
    library, too."""
    if tree() is None:
        return dict(os.environ)
    paths = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def check_program(path: str) -> None:
    """CommandError unless there is a file of this name that may be a program."""
    if not os.path.isfile(path):
        raise CommandError(f"there is no file {path!r}")
    if not path.endswith((".py", ".ipynb")):
        raise CommandError(f"{path!r} is neither a .py nor an .ipynb file")
