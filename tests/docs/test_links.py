"""Every link in chapters, README, guides and other texts leads somewhere, seen without a network.
(Those of the reference in `make book` are the business of test_book_reference.py.)

A local link names a file that a fresh clone has, and a heading or line that the file has; a
picture has a description. Of a link that leads away only the form is looked at: https, a host.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from repository import ROOT, tracked_files

CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]+`", re.M | re.S)
LINK = re.compile(
    r"\]\(\s*<?([^)\s>]+)[^)]*\)|\b(?:href|src)=[\"']([^\"']*)[\"']|<(\w+://[^>\s]+)>"
)
BARE = re.compile(r"\bhttp://\S+")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.M)


def text_of(path: Path) -> str:
    """The Markdown of a text or of a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def links_of(text: str) -> list[str]:
    """The targets of links and pictures, those in code left out."""
    return ["".join(found) for found in LINK.findall(CODE.sub("", text))]


def anchors_of(path: Path) -> set[str]:
    """What may stand behind `#`: headings as JupyterLab or GitHub name them, or lines."""
    if path.suffix == ".ipynb":
        return {re.sub(r"[`*]", "", h).replace(" ", "-") for h in HEADING.findall(text_of(path))}
    if path.suffix == ".md":
        headings = HEADING.findall(CODE.sub("", text_of(path)))
        return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    return {f"L{number + 1}" for number, _ in enumerate(path.read_text("utf-8").splitlines())}


def problems(path: Path, files: set[Path]) -> Iterator[str]:
    """What is wrong with the links of one text; `files` are those that a clone has."""
    text = text_of(path)
    for link in links_of(text):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            host = parts.hostname or ""
            if parts.scheme != "https" or not re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", host):
                yield f"{link}: leads away, but not by https to a host"
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        is_folder = any(target in file.parents for file in files)
        if target not in files and not is_folder:
            yield f"{link}: no such file in a fresh clone"
        elif parts.fragment and unquote(parts.fragment) not in anchors_of(target):
            yield f"{link}: {target.name} has no heading or line of that name"
    for address in BARE.findall(CODE.sub("", text)):
        if not re.match(r"http://(127\.0\.0\.1|localhost|www\.w3\.org)", address):
            yield f"{address}: should be https"
    for picture in re.findall(r"<img\b[^>]*>", text):
        if not re.search(r"\balt=\"[^\"]{10,}\"", picture):
            yield f"{picture[:60]}: no description for who cannot see it (alt=)"
    for alt, source in re.findall(r"!\[([^\]]*)\]\(([^)\s]+)", text):
        if not alt:
            yield f"{source}: no description for who cannot see it"


PLACES = ("*.md", "docs/*.md", "tests/**/*.md", "chapters/*.ipynb")
TEXTS = sorted(path for place in PLACES for path in ROOT.glob(place))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path):
    files = {file.resolve() for file in tracked_files()}
    assert not list(problems(path, files))


@pytest.mark.parametrize("path", sorted(ROOT.glob("img/*.svg")), ids=lambda path: path.name)
def test_a_drawing_is_shown_somewhere_and_has_colours_for_the_dark(path):
    assert any(f"img/{path.name}" in text_of(text) for text in TEXTS)
    assert "prefers-color-scheme: dark" in path.read_text(encoding="utf-8")


def test_there_is_something_to_look_at():
    """Each chapter has a link; README a picture, a chapter and a text."""
    guides = "README.md CONTRIBUTING.md docs/README.md docs/reading-guide.md"
    known = [*guides.split(), "chapters/00-start-here.ipynb"]
    assert {ROOT / name for name in known} <= {*TEXTS}
    assert all(links_of(text_of(path)) for path in TEXTS if path.suffix == ".ipynb")
    kinds = {Path(link).suffix for link in links_of(text_of(ROOT / "README.md"))}
    assert {".svg", ".ipynb", ".md"} <= kinds


@pytest.fixture
def files(tmp_path) -> set[Path]:
    cell = {"cell_type": "markdown", "source": ["# A `b` c\n", "\n", "## 1. Why?\n"]}
    texts = {
        "chapters/other.ipynb": json.dumps({"cells": [cell]}),
        "notes.md": "# How it's made, today\n",
        "code.py": "one\ntwo\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "untracked.md").write_text("here only", encoding="utf-8")
    return {(tmp_path / name).resolve() for name in texts}


GOOD = """
[a](chapters/other.ipynb#1.-Why?) [b](chapters/other.ipynb#A-b-c) [c](notes.md#how-its-made-today)
[d](code.py#L2) [e](https://d2l.ai/x?y=1#z "title") [f](chapters/) [g](#here) <https://d2l.ai>
`[code](gone.md)` <img src="code.py" alt="What one sees in it">

# Here

```
[h](gone.md)
```
"""


def test_good_links_pass(files, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(GOOD, encoding="utf-8")
    assert len(links_of(GOOD)) == 9
    assert list(problems(page.resolve(), {*files, page.resolve()})) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[a](gone.md)", "no such file"),
        ("[a](untracked.md)", "in a fresh clone"),
        ("[a](../outside.md)", "no such file"),
        ('<a href="gone.html">a</a>', "no such file"),
        ('<img src="gone.png" alt="a long description">', "no such file"),
        ("[a](notes.md#another)", "notes.md has no heading"),
        ("[a](chapters/other.ipynb#1.-Why)", "other.ipynb has no heading"),
        ("[a](code.py#L3)", "code.py has no heading or line"),
        ("[a](#nowhere)", "page.md has no heading"),
        ("[a](http://d2l.ai)", "not by https"),
        ("see http://d2l.ai", "should be https"),
        ("[a](https://nohost)", "not by https to a host"),
        ("<ftp://d2l.ai/x>", "not by https"),
        ("[a](//d2l.ai)", "not by https"),
        ('<img src="code.py">', "no description"),
        ("![](code.py)", "no description"),
    ],
)
def test_broken_ones_are_named(files, tmp_path, text, problem):
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    found = list(problems(page.resolve(), {*files, page.resolve()}))
    assert found and problem in found[0]
