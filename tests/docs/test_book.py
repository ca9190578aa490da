"""`make book`: pages that hold what the notebooks hold, lead where they say, and ask nobody."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from build_book import LEFT_OUT, OUTCOME, WIDGET, Book, BrokenBook, in_order, main
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).parents[2]
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


def test_what_a_cell_imports_from_labs_can_be_read(root):
    (root / "chapters" / "labs").mkdir()
    (root / "chapters" / "labs" / "second.py").write_text("def check_wallaby(answer): ...")
    path = root / "chapters" / "second.ipynb"
    cell = new_code_cell("from labs.second import check_wallaby")
    nbformat.write(new_notebook(cells=[new_markdown_cell("# Second"), cell]), path)
    out = built(root)
    [link] = page(out, "second.html").select(".labs a")
    assert link.string == "labs/second.py"
    assert "check_wallaby" in page(out, link["href"]).main.get_text()
    cell.source = "from labs.third import gone"
    nbformat.write(new_notebook(cells=[cell]), path)
    with pytest.raises(BrokenBook, match=r"second\.ipynb imports labs\.third"):
        built(root)


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


def test_chapters_that_the_first_page_does_not_name_come_last():
    assert in_order(["a", "start-here", "z"], "[a](a.ipynb)\n## The chapters\n[z](z.ipynb)") == [
        "start-here",
        "z",
        "a",
    ]


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


GUIDES = """# Guides

First [how](how.md), with [its end](how.md#the-end-really), then the rest.
"""
HOW = """# How `it` works

See [the chapter](../chapters/second.ipynb#Exercises) and [the line](../d2lmini/core.py#L2).

## The end, really

platypus
"""


def test_guides_stand_beside_the_chapters(root):
    """In the order in which their first page names them, headings as GitHub calls them."""
    (root / "docs").mkdir()
    for name, text in {"README": GUIDES, "how": HOW, "also": "# Also"}.items():
        (root / "docs" / f"{name}.md").write_text(text, encoding="utf-8")
    out = built(root)
    how = page(out, "docs.how.html")
    order = ["docs.README.html", "docs.how.html", "docs.also.html"]
    assert [a["href"] for a in how.select(".guides > li > a")] == order
    assert how.title.string == "How it works" and how.select_one(".guides .here")
    folds = {fold.summary.string: fold.has_attr("open") for fold in how.select(".part")}
    assert folds == {"Chapters": False, "Guides": True}
    links = [a["href"] for a in how.main.select("p a")]
    assert links == ["second.html#Exercises", "d2lmini.core.py.html#L2"]
    assert page(out, "d2lmini.core.py.html").select_one("#L2").string.strip() == "2"
    assert [a["href"] for a in page(out, order[0]).main.select("p a")] == [
        "docs.how.html",
        "docs.how.html#the-end-really",
    ]
    assert how.select_one("#the-end-really").name == "h2"
    words = {tuple(section[:2]): section[3] for section in index_of(out)["sections"]}
    assert words["docs.how.html", "the-end-really"] == "platypus"
    assert len(page(out, "index.html").select(".chapters > li")) == 3


def test_a_guide_that_leads_nowhere_is_named(root):
    (root / "docs").mkdir()
    (root / "docs" / "how.md").write_text("# How\n\n[gone](gone.md)", encoding="utf-8")
    with pytest.raises(BrokenBook, match=r"how\.md points to gone\.md"):
        built(root)


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


def test_a_folder_without_chapters_is_refused(tmp_path):
    with pytest.raises(BrokenBook, match="there is no chapter in"):
        Book(tmp_path, tmp_path / "out")


def test_the_search_finds_what_the_index_holds(root):
    """The script's own function, in Node where there is one; the browser tests ask a browser."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node")
    script = (ROOT / "tests/tools/book/book.js").read_text("utf-8")
    functions = re.findall(r"^function (?:beginning|search)\(.*?^}$", script, re.M | re.S)
    asked = f"{'; '.join(functions)}; const index = {json.dumps(index_of(built(root)))};"
    words = ["ZEBRA", "quokka code", "quokka zebra", "", "ebra", "zeb"]
    asked += f"console.log(JSON.stringify({json.dumps(words)}.map("
    asked += "words => search(index, words).map(hit => hit.anchor))))"
    done = subprocess.run([node, "-e", asked], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [
        ["Exercises"], ["1.-How-many?"], [], [], [], ["Exercises"],
    ]  # fmt: skip
