"""`make book`: pages that hold what the notebooks hold, lead where they say, and ask nobody."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from build_book import LEFT_OUT, OUTCOME, WIDGET, Book, BrokenBook, main
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADU"
    "lEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
FIRST = """
# The first page

Greetings from Peking: 异步计算. <img src="../img/map.svg" alt="A map">

## The chapters

| | chapter |
| --- | --- |
| 1 | [second](second.ipynb) |
| 2 | [another](another.ipynb) |

## 1. How many?

They are $2n^3$, in [the core](../d2lmini/core.py), as [the second](second.ipynb#Exercises) says.

<details><summary>Answer</summary>

Fortytwo, `x < y`, by [d2l](https://d2l.ai).

</details>
"""
SECOND = (
    "# The second\n\n## Exercises\n\n<details><summary>Answers</summary>\n\nzebra\n\n</details>"
)
CAPTION = "*A caption of\ntwo lines.*"


def drawn() -> nbformat.NotebookNode:
    """A cell with a widget, its picture, and what it printed."""
    view = {WIDGET: {"model_id": "none"}, "text/plain": "the widget itself"}
    outputs = [
        new_output("display_data", data=view),
        new_output("display_data", data={"image/png": PIXEL, "text/plain": "a picture"}),
        new_output("stream", name="stdout", text="printed <here>"),
    ]
    return new_code_cell("quokka = '<x>'  # code", execution_count=1, outputs=outputs)


@pytest.fixture
def root(tmp_path) -> Path:
    """A repository of three chapters."""
    for folder in ("chapters", "img", "d2lmini"):
        (tmp_path / folder).mkdir()
    (tmp_path / "img" / "map.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (tmp_path / "d2lmini" / "core.py").write_text("def wombat():\n    return 1\n")
    cells = {
        "start-here": [new_markdown_cell(FIRST), drawn(), new_markdown_cell(CAPTION)],
        "second": [new_markdown_cell(SECOND)],
        "another": [new_markdown_cell("# Another\n\n$$a < b$$")],
    }
    metadata = {"language_info": {"name": "python"}}
    for name, each in cells.items():
        notebook = new_notebook(cells=each, metadata=metadata)
        nbformat.write(notebook, tmp_path / "chapters" / f"{name}.ipynb")
    return tmp_path


def built(root: Path, solutions: bool = True) -> Path:
    Book(root / "chapters", root / "out", solutions).write()
    return root / "out"


def page(out: Path, name: str) -> BeautifulSoup:
    return BeautifulSoup((out / name).read_text("utf-8"), "html.parser")


def test_a_page_holds_what_its_notebook_holds(root):
    first = page(built(root), "index.html")
    assert first.title.string == first.h1.string == "The first page"
    assert "异步计算" in first.main.get_text()
    assert first.select_one(".highlight").get_text() == "quokka = '<x>'  # code"
    assert first.select_one(".highlight .c").string == "# code"
    assert first.select_one(".output_stdout").get_text().strip() == "printed <here>"
    assert [m.get_text() for m in first.find_all("math")] == ["2n3"]
    assert (
        first.main.details.summary.string == "Answer" and "x < y" in first.main.details.get_text()
    )


def test_of_a_widget_there_is_the_picture_which_says_what_its_caption_says(root):
    first = page(built(root), "index.html")
    (picture,) = first.select("img[src^=data]")
    assert picture["src"] == f"data:image/png;base64,{PIXEL}"
    assert picture["alt"] == "A caption of two lines."
    assert "the widget itself" not in first.get_text() and WIDGET not in str(first)


PARTS = """
## 1. A question?

What is 1 + 1?

**Your prediction.** Two?

> code

And again?

> code

**What happened.** It is.

> code

**Your prediction.** And now?

> code

## 2. Another?

> code
"""


def test_an_output_that_answers_a_prediction_is_folded(root):
    """Those from a prediction to what happened, and no other ones."""
    output = new_output("stream", name="stdout", text="2")
    cells = [
        new_code_cell("1 + 1", outputs=[output]) if part == "code" else new_markdown_cell(part)
        for part in re.split(r"^> (code)$", PARTS, flags=re.M)
    ]
    nbformat.write(new_notebook(cells=cells), root / "chapters" / "second.ipynb")
    soup = page(built(root), "second.html")
    folded = [bool(part.find_parent("details")) for part in soup.select(".output_wrapper")]
    assert folded == [True, True, False, True, False]
    assert {fold.summary.string for fold in soup.main.find_all("details")} == {OUTCOME}


def test_navigation(root):
    out = built(root)
    order = ["index.html", "second.html", "another.html"]
    for place, name in enumerate(order):
        soup = page(out, name)
        assert [a["href"] for a in soup.select(".chapters > li > a")] == order
        assert soup.select_one("[aria-current]")["href"] == name
        turn = {a["rel"][0]: a["href"] for a in soup.select(".turn a")}
        expected = {
            "prev": [None, *order][place],
            "next": [*order, None][place + 1],
        }
        assert turn == {key: value for key, value in expected.items() if value}
    contents = [a["href"] for a in page(out, "index.html").select(".contents a")]
    assert contents == ["#The-chapters", "#1.-How-many%3F"]


def test_every_link_leads_to_a_file_of_the_book_and_every_request_stays_there(root):
    out = built(root)
    for file in out.glob("*.html"):
        soup = page(out, file.name)
        for tag, key in (("a", "href"), ("img", "src"), ("link", "href"), ("script", "src")):
            for element in soup.find_all(tag, attrs={key: True}):
                target, _, anchor = element[key].partition("#")
                if element[key].startswith("data:") or (tag == "a" and "://" in target):
                    continue
                assert (out / (target or file.name)).is_file(), (file.name, element)
                if tag == "a" and anchor:
                    ids = {e["id"] for e in page(out, target or file.name).select("[id]")}
                    assert anchor.replace("%3F", "?") in ids, (file.name, element)
    links = [a["href"] for a in page(out, "index.html").main.select("p a")]
    assert links == ["d2lmini.core.py.html", "second.html#Exercises", "https://d2l.ai"]
    assert "wombat" in page(out, "d2lmini.core.py.html").get_text()
    for file in ("book.css", "book.js"):
        assert not re.search(r"https?:|//\w+\.\w|@import|fetch\(", (out / file).read_text("utf-8"))


def index_of(out: Path) -> dict:
    return json.loads(
        (out / "search-index.js").read_text("utf-8").removeprefix("globalThis.bookIndex = ")[:-2]
    )


def test_the_index_has_words_and_code_by_section_and_no_outputs(root):
    index = index_of(built(root))
    sections = {(file, anchor): text for file, anchor, _, text in index["sections"]}
    assert "异步计算" in sections["index.html", "The-first-page"]
    assert "quokka" in sections["index.html", "1.-How-many?"]
    assert "zebra" in sections["second.html", "Exercises"]
    assert "printed" not in "".join(sections.values())
    assert index["titles"]["second.html"] == "The second"


def test_without_solutions_they_are_in_no_file_and_are_counted(root, capsys):
    out = root / "exercises"
    assert (
        main(["--chapters", str(root / "chapters"), "--out", str(out), "--without-solutions"]) == 0
    )
    said = capsys.readouterr().out.splitlines()
    assert re.match(r"index\.html +1 answers left out", said[0])
    assert said[-1].startswith("3 chapters, 2 answers: open ")
    for file in out.glob("*"):
        if file.is_file():
            assert not re.search("Fortytwo|zebra", file.read_text("utf-8")), file
    assert page(out, "second.html").select_one(".left-out").string == LEFT_OUT
    assert page(out, "index.html").main.find("details") is None


@pytest.mark.parametrize("link", ["gone.ipynb", "../img/gone.svg", "../../outside.txt"])
def test_a_link_that_leads_nowhere_is_named(root, link, capsys):
    (root.parent / "outside.txt").write_text("not ours")
    cell = new_markdown_cell(f"# Broken\n\n[gone]({link})")
    nbformat.write(new_notebook(cells=[cell]), root / "chapters" / "broken.ipynb")
    with pytest.raises(BrokenBook, match=rf"broken\.ipynb points to {re.escape(link)}"):
        built(root)
    assert main(["--chapters", str(root / "chapters"), "--out", str(root / "out")]) == 1
    assert "broken.ipynb" in capsys.readouterr().err
