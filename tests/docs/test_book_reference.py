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


@pytest.mark.parametrize("module", [book_api, book_code, public_names])
def test_the_examples_of_the_tools_hold(module):
    failed, tried = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert tried and not failed
