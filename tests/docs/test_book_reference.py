"""The reference and the guides of `make book`, as they are made of this library and of `docs/`."""

from __future__ import annotations

import doctest
import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import book_api
import book_code
import build_book
import public_names
import pytest
from book_api import html_of
from bs4 import BeautifulSoup
from build_book import ROOT, Book, Page, name_headings
from public_names import HOME, all_entries

if HOME != ROOT:
    pytest.skip(
        "the library comes from elsewhere, the code to link to is here", allow_module_level=True
    )


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Book:
    """The guides and the reference; of the chapters the titles only: they have their test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_book, "read_page", title_only)
        book = Book(ROOT / "chapters", tmp_path_factory.mktemp("book"), api=True)
        book.write()
    return book


def title_only(path: Path, *_: object) -> Page:
    page = Page(path, BeautifulSoup(f"<h1>{path.stem}</h1>", "html.parser"))
    name_headings(page, str)
    return page


def test_every_link_of_guides_and_reference_leads_somewhere(book):
    """Within a page or to another one; what leads away is looked at by test_links.py."""
    texts = {path.name: path.read_text("utf-8") for path in book.out.glob("*.html")}
    ids = {name: set(map(unescape, re.findall(r' id="([^"]*)"', t))) for name, t in texts.items()}
    broken = []
    for name, text in texts.items():
        for address in set(re.findall(r'<a [^>]*href="([^"]*)"', text)):
            target, _, anchor = unescape(address).partition("#")
            if "://" in target:
                continue
            file = unquote(target) or name
            if file not in texts and not (book.out / file).is_file():
                broken.append(f"{name}: {address}: no such page")
            elif anchor and unquote(anchor) not in ids[file] and not is_chapters(file):
                broken.append(f"{name}: {address}: no such place")
    assert len(texts) > 100 and not broken, "\n".join(sorted(broken)[:40])


def is_chapters(file: str) -> bool:
    """Their headings were left out above; test_links.py knows them."""
    return (ROOT / "chapters" / file).with_suffix(".ipynb").exists()


def test_every_public_name_is_found_where_the_index_says(book):
    places = {}
    for page in book.reference:
        assert page.title and page.contents + [(1, "", page.title)]
        for anchor, heading, words in page.sections:
            places[heading] = (page, anchor, words)
    entries = list(all_entries())
    missing = [e.path for e in entries if "." not in e.name and e.path not in places]
    assert not missing
    page, anchor, words = places["nd.dot"]
    assert f'id="{anchor}"' in page.body and "transpose_b" in words
    assert "Matrix" in words or "product" in words


def test_a_name_in_a_text_leads_to_its_words(book):
    """Where it stands by itself; not in a heading, a link or a program."""
    text = (book.out / "docs.your-own-program.html").read_text("utf-8")
    text += (book.out / "docs.add-an-op.html").read_text("utf-8")
    names = dict(re.findall(r'<a class="name" href="([^"]*)"><code>([^<]*)</code>', text))
    assert names["api.autograd.html#autograd.Function"] == "autograd.Function"
    assert names["api.d2lmini.html#lint_waits"].startswith("d2lmini.lint_waits(")
    assert not re.search(r'<pre>[^<]*<a class="name"', text)


def test_a_name_leads_to_its_line(book):
    (page,) = (page for page in book.reference if page.name == "api.gluon")
    found = re.search(r'id="gluon.Trainer.step">.*?href="([^"#]+)#L(\d+)"', page.body)
    code = (book.out / found[1]).read_text("utf-8")
    assert re.search(rf'id="L{found[2]}"[^>]*>[^<]*</a>[^\n]*step', code)


def test_an_example_is_shown_as_it_is_typed():
    html = html_of(">>> x = 'a'  # one\n>>> x\n'a'\n", {}.get)
    assert '<span class="gp">>>> </span>' in html
    assert '<span class="c"># one</span>' in html
    assert "<span class=\"go\">'a'</span>" in html


@pytest.mark.parametrize(
    ("doc", "html"),
    [
        ("One <b>.\ntwo", "<p>One &lt;b&gt;.\ntwo</p>"),
        ("- a\n  b\n- c", "<ul><li>a\n  b</li><li>c</li></ul>"),
        ("a    one\nbb   two\n     three", "<pre>a    one\nbb   two\n     three</pre>"),
        ("Words:\n    as they\n      stand", "<p>Words:</p>\n<pre>as they\n  stand</pre>"),
        ("n: how many. m: n times.", "<p><b>n</b>: how many. m: n times.</p>"),
    ],
)
def test_a_docstring_keeps_its_form(doc, html):
    assert html_of(doc, {}.get, ["n", "k"]) == html


def test_a_file_is_numbered_and_coloured_across_lines():
    html = book_code.listing('x = """a\nb"""\nclass A: pass\n', is_python=True)
    assert re.findall(r'id="L(\d)"', html) == ["1", "2", "3"]
    assert html.count('<span class="s">') == 1 and '<span class="nf">A</span>' in html
    assert re.sub(r"<[^>]+>", "", html) == '1 x = """a\n2 b"""\n3 class A: pass'


@pytest.mark.parametrize("module", [book_api, book_code, public_names])
def test_the_examples_of_the_tools_hold(module):
    failed, tried = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert tried and not failed


def test_places_are_told_as_files_of_the_package(book):
    """Wherever it was installed; no path of this machine is in the book."""
    assert all(path.parts[0] == "d2lmini" and line > 0 for path, line in PLACES)
    assert str(ROOT) not in "".join(page.body for page in book.reference)


PLACES = [entry.place for entry in all_entries() if entry.place]
