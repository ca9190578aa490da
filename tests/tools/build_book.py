"""The chapters as a site to read without Jupyter, a server or a network: `make book`.

    python tests/tools/build_book.py [--without-solutions] [--out FOLDER]

nbconvert makes HTML of cells. What makes a book of them is here and in `book/`, the template, the
style and the script of its pages: an order, contents, links from chapter to chapter and into the
library's files, formulas as MathML, and an index of all words. The index is a script that assigns,
since a page opened from a folder may not fetch. Of a widget the book has the picture.

Beside the chapters stand the texts of `docs/`, read by the same road, and a reference made of the
library itself (`book_api.py`).
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import book_code
import nbformat
from book_api import ApiPage, Reference
from bs4 import BeautifulSoup, Tag
from jinja2 import Environment, FileSystemLoader
from latex2mathml.converter import convert as mathml
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from d2lmini.cli.files import chapter_name

ROOT = Path(__file__).resolve().parents[2]
PARTS = Path(__file__).resolve().parent / "book"
FIRST = "start-here"


GUIDES = "docs"
HEADINGS = ["h1", "h2", "h3"]
OUTCOME = "What one run printed"
PREDICT, HAPPENED = "Your prediction.", "What happened."
WIDGET = "application/vnd.jupyter.widget-view+json"
LEFT_OUT = "An answer is left out of this copy of the book."


class BrokenBook(Exception):
    """A chapter points to something that is not there; the message names both."""


@dataclass
class Page:
    """A chapter or a guide on its way: its HTML, and the answers that were folded in it."""

    path: Path
    soup: BeautifulSoup
    answers: int = 0
    title: str = ""
    contents: list[tuple[int, str, str]] = field(default_factory=list)  # level, id, text

    @property
    def part(self) -> str:
        return "chapters" if self.path.suffix == ".ipynb" else "guides"

    @property
    def file(self) -> str:
        return chapter_file(self.path) if self.part == "chapters" else guide_file(self.path)

    @property
    def body(self) -> BeautifulSoup:
        return self.soup

    @property
    def sections(self) -> list[tuple[str, str, str]]:
        return sections_of(self)


def chapter_file(path: Path) -> str:
    """The page of a chapter; the first one is the page that opens with a folder."""
    name = chapter_name(path)
    return "index.html" if name == FIRST else f"{name}.html"


def guide_file(path: Path) -> str:
    return f"{GUIDES}.{path.stem}.html"


# --- a notebook as HTML ---


class Renderer(IPythonRenderer):
    """nbconvert's Markdown, with formulas that browsers draw without a script."""

    def inline_math(self, body: str) -> str:
        return mathml(body)

    def block_math(self, body: str) -> str:
        return mathml(body, display="block")


class Exporter(HTMLExporter):
    """Cells as plain HTML: no page around them, no prompts, no script."""

    def __init__(self):
        super().__init__(
            template_name="basic",
            exclude_input_prompt=True,
            exclude_output_prompt=True,
            filters={
                # What comes from our own chapters need not be made harmless: a third of the time.
                "clean_html": lambda html: html,
                # And nbconvert reads again what colours each comma: a third of the rest.
                "highlight_code": lambda code, **_: book_code.block(code),
            },
        )

    def markdown2html(self, source: str) -> str:
        renderer = Renderer(escape=False, exclude_anchor_links=True)
        return MarkdownWithMath(renderer=renderer).render(source)


def without_widgets(notebook: nbformat.NotebookNode) -> None:
    """Leave of each widget its picture, and say of each picture what its caption says."""
    for cell, after in zip(notebook.cells, [*notebook.cells[1:], None]):
        caption = re.match(r"\*([^*].*?)\*$", after.source if after else "", re.M | re.S)
        alt = " ".join(caption[1].split()) if caption else "what the cell above drew"
        for output in cell.get("outputs", ()):
            shown = output.get("data", {})
            if shown.pop(WIDGET, None) is not None and "image/png" not in shown:
                shown.clear()
            for kind in shown:
                if kind.startswith("image/"):
                    output.metadata.setdefault(kind, {})["alt"] = alt
        if "outputs" in cell:
            cell.outputs = [o for o in cell.outputs if o.get("data") != {}]


def read_page(path: Path, exporter: HTMLExporter, solutions: bool) -> Page:
    notebook = nbformat.read(path, as_version=4)
    without_widgets(notebook)
    html, _ = exporter.from_notebook_node(notebook)
    page = Page(path, BeautifulSoup(html, "html.parser"))
    for fold in page.soup.find_all("details"):
        page.answers += 1
        if not solutions:
            note = page.soup.new_tag("p", attrs={"class": "left-out"})
            note.string = LEFT_OUT
            fold.replace_with(note)
    fold_outcomes(page.soup)
    name_headings(page, lambda text: text.replace(" ", "-"))  # as JupyterLab does
    return page


def fold_outcomes(soup: BeautifulSoup) -> None:
    """Fold each output that answers a prediction: those from "Your prediction." to "What happened."
    or the end of the section."""
    predicting = False
    for cell in soup.find_all("div", class_="cell"):
        if "text_cell" in cell["class"]:
            for mark in cell.find_all(["strong", "h2"]):
                if mark.name == "h2" or mark.get_text() in (PREDICT, HAPPENED):
                    predicting = mark.get_text() == PREDICT
        output = cell.find("div", class_="output_wrapper")
        if predicting and output:
            fold = output.wrap(soup.new_tag("details", attrs={"class": "outcome"}))
            summary = soup.new_tag("summary")
            summary.string = OUTCOME
            fold.insert(0, summary)


def read_guide(path: Path, exporter: HTMLExporter) -> Page:
    html = exporter.markdown2html(path.read_text(encoding="utf-8"))
    page = Page(path, BeautifulSoup(html, "html.parser"))
    # As GitHub does.
    name_headings(page, lambda text: re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-"))
    return page


def name_headings(page: Page, id_of: Callable[[str], str]) -> None:
    for heading in page.soup.find_all(HEADINGS):
        text = " ".join(heading.get_text().split())
        heading["id"] = id_of(text)
        page.title = page.title or text
        page.contents.append((int(heading.name[1]), heading["id"], text))


# --- pages as a book ---


def guides_in_order(folder: Path) -> list[Path]:
    """The texts of a folder: README, what it links to, in that order, then the others."""
    paths = sorted(folder.glob("*.md"))
    first = folder / "README.md"
    linked = re.findall(r"\]\(([\w-]+\.md)\)", first.read_text("utf-8")) if first in paths else []
    named = [folder / name for name in linked if folder / name in paths]
    return list(dict.fromkeys([*([first] if first in paths else []), *named, *paths]))


def in_order(names: list[str], first_page: str) -> list[str]:
    """The first page, then chapters as the table below its "## The chapters" has them, then the
    others."""
    table = first_page.partition("\n## The chapters\n")[2].split("\n## ")[0]
    named = [
        name
        for name in re.findall(r"\((?:\d\d-|appendix-)?([\w-]+)\.ipynb\)", table)
        if name in names
    ]
    return list(dict.fromkeys([*([FIRST] if FIRST in names else []), *named, *names]))


class Book:
    """A folder of pages, made of a folder of chapters and the guides beside it; links that lead out
    of those are followed into `root`, where pictures and the library's files are. `api`: with the
    reference of the library that can be imported."""

    def __init__(self, chapters: Path, out: Path, solutions: bool = True, api: bool = False):
        self.chapters, self.out, self.root = chapters, out, chapters.parent.resolve()
        self.sources: dict[Path, str] = {}  # a file of the library -> its page
        paths = {chapter_name(path): path for path in sorted(chapters.glob("*.ipynb"))}
        if not paths:
            raise BrokenBook(f"there is no chapter in {chapters}")
        cells = nbformat.read(paths[FIRST], as_version=4).cells if FIRST in paths else []
        first_page = "\n".join(c.source for c in cells if c.cell_type == "markdown")
        exporter = Exporter()
        names = in_order(list(paths), first_page)
        self.pages = [read_page(paths[name], exporter, solutions) for name in names]
        self.guides = [read_guide(p, exporter) for p in guides_in_order(self.root / GUIDES)]
        library = Reference(self._line_of_code) if api else None
        self.places = library.places if library else {}  # a public name -> where it is described
        self.reference = library.pages if library else []
        self.all_pages: list[Page | ApiPage] = [*self.pages, *self.guides, *self.reference]
        parts = Environment(loader=FileSystemLoader(PARTS), autoescape=True)
        self.template = parts.get_template("page.html.j2")

    def write(self) -> None:
        """All files of the book, in a folder that is made anew."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        for part in ("book.css", "book.js"):
            shutil.copy(PARTS / part, self.out)
        for page in [*self.pages, *self.guides]:
            for tag, key in (("a", "href"), ("img", "src")):
                for element in page.soup.find_all(tag, attrs={key: True}):
                    element[key] = self._address(page, element[key])
            self._link_labs(page)
            self._link_names(page)
        self._write_index()
        for part in (self.pages, self.guides, self.reference):
            neighbours = zip([None, *part], part, [*part[1:], None])
            for before, page, after in neighbours:
                self._write_page(page.file, page, page.body, page.title, before, after)
        for path, file in self.sources.items():
            code = book_code.listing(path.read_text("utf-8"), path.suffix == ".py")
            title = path.relative_to(self.root).as_posix()
            self._write_page(file, None, f"<h1>{title}</h1>{code}", title)

    def _write_page(
        self, file: str, page: object, body: object, title: str, before: object = None,
        after: object = None,
    ) -> None:  # fmt: skip
        parts = {"Chapters": self.pages, "Guides": self.guides, "Reference": self.reference}
        html = self.template.render(
            parts=parts, page=page, body=body, title=title, before=before, after=after
        )
        (self.out / file).write_text(html, encoding="utf-8")

    def _link_names(self, page: Page) -> None:
        """A name of the library in a text, `nd.dot`, leads to what the reference says of it."""
        for code in page.soup.find_all("code"):
            text = re.sub(r"\(.*\)$", "", code.get_text())
            place = self.places.get(re.sub(r"^(d2lmini|mx)\.", "", text))
            if place and "." in text and not code.find_parent(["a", "pre", "summary", *HEADINGS]):
                code.wrap(page.soup.new_tag("a", attrs={"class": "name", "href": place}))

    def _link_labs(self, page: Page) -> None:
        """Below a cell that imports from the chapter's module of `labs`: a link to that file."""
        for cell in page.soup.select(".input .highlight"):
            for name in re.findall(r"from labs\.(\w+) import", cell.get_text()):
                path = self.chapters.resolve() / "labs" / f"{name}.py"
                if not path.is_file():
                    raise BrokenBook(f"{page.path.name} imports labs.{name}, which is not there")
                note = page.soup.new_tag("p", attrs={"class": "labs"})
                link = page.soup.new_tag("a", href=self._source(path))
                link.string = f"labs/{name}.py"
                note.append(link)
                cell.insert_after(note)

    def _source(self, path: Path) -> str:
        """The page of a file of the library."""
        name = ".".join(path.relative_to(self.root).parts)
        return self.sources.setdefault(path, f"{name}.html")

    def _line_of_code(self, path: Path, line: int) -> str:
        return f"{self._source(self.root / path)}#L{line}"

    def _address(self, page: Page, address: str) -> str:
        """Where a link of a chapter leads in the book; what it leads to is copied there."""
        parts = urlsplit(address)
        if parts.scheme or not parts.path:
            return address
        path = (page.path.parent / unquote(parts.path)).resolve()
        if path.is_dir():  # a part of the library
            path /= "__init__.py"
        if not path.is_relative_to(self.root) or not path.is_file():
            raise BrokenBook(f"{page.path.name} points to {address}, which is not there")
        within = path.relative_to(self.root)
        if path.suffix == ".ipynb":
            file = chapter_file(path)
        elif path.suffix == ".md" and path.parent == self.root / GUIDES:
            file = guide_file(path)
        elif path.suffix in (".svg", ".png", ".jpg"):
            file = within.as_posix()
            (self.out / file).parent.mkdir(exist_ok=True)
            shutil.copy(path, self.out / file)
        else:
            file = self._source(path)
        return quote(file) + (f"#{parts.fragment}" if parts.fragment else "")

    def _write_index(self) -> None:
        """Page, anchor, heading and words of each section, outputs left out."""
        sections = [
            [page.file, anchor, heading, " ".join(words.split())]
            for page in self.all_pages
            for anchor, heading, words in page.sections
        ]
        titles = {page.file: page.title for page in self.all_pages}
        found = json.dumps({"titles": titles, "sections": sections}, ensure_ascii=False)
        text = f"globalThis.bookIndex = {found};\n"
        (self.out / "search-index.js").write_text(text, encoding="utf-8")


def sections_of(page: Page) -> list[tuple[str, str, str]]:
    """Anchor, heading and text of each part of a page that begins with a heading."""
    soup = copy.copy(page.soup)
    for output in soup.find_all(class_="output_wrapper"):
        output.decompose()
    for heading in soup.find_all(HEADINGS):
        heading.clear()
    headings = iter(page.contents)
    found: list[tuple[str, str, list[str]]] = [("", page.title, [])]
    for node in soup.descendants:
        if not isinstance(node, Tag):
            found[-1][2].append(str(node))
        elif node.name in HEADINGS:
            _, anchor, heading = next(headings)
            found.append((anchor, heading, []))
    joined = [(anchor, heading, "".join(words)) for anchor, heading, words in found]
    return [
        (anchor, heading, words) for anchor, heading, words in joined if anchor or words.strip()
    ]


def main(argv: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--chapters", type=Path, default=ROOT / "chapters")
    options.add_argument("--out", type=Path, help="default: build/book, or build/book-exercises")
    options.add_argument(
        "--without-solutions", action="store_true", help="leave out folded answers"
    )
    chosen = options.parse_args(argv)
    solutions = not chosen.without_solutions
    out = chosen.out or ROOT / "build" / ("book" if solutions else "book-exercises")
    try:
        of_the_library = chosen.chapters.resolve() == (ROOT / "chapters").resolve()
        book = Book(chosen.chapters, out, solutions, api=of_the_library)
        book.write()
    except BrokenBook as problem:
        print(problem, file=sys.stderr)
        return 1
    for page in book.pages:
        print(f"{page.file:40} {page.answers:3} answers {'folded' if solutions else 'left out'}")
    answers = sum(page.answers for page in book.pages)
    names = sum(len(page.sections) for page in book.reference)
    if book.guides or names:
        print(f"{len(book.guides)} guides, and a reference of {names} names")
    print(f"{len(book.pages)} chapters, {answers} answers: open {out / book.pages[0].file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
