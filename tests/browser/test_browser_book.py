"""The book, opened from a folder: pages, contents, search, pictures, and nobody else is asked."""

import json

import pytest
from build_book import Book
from lab_server import ROOT

pytestmark = pytest.mark.timeout(300)

UNSEEN = "() => [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    book = Book(ROOT / "chapters", tmp_path_factory.mktemp("book"), api=True)
    book.write()
    return book


@pytest.fixture
def sheet(browser):
    """A page as a reader's browser opens it, and what it asked for and complained about."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    found: list[str] = []
    page.on("request", lambda r: r.url.startswith(("file:", "data:")) or found.append(r.url))
    page.on("console", lambda m: m.type == "error" and found.append(m.text))
    page.on("pageerror", lambda error: found.append(str(error)))
    yield page
    context.close()
    assert not found, found


def test_a_reader_turns_all_pages(book, sheet, pictures):
    sheet.goto((book.out / "index.html").as_uri())
    assert sheet.locator(".chapters > li").count() == len(book.pages)
    for page in book.pages:
        assert sheet.title() == page.title
        assert sheet.locator("[aria-current]").inner_text() == page.title
        assert sheet.locator("main img").count() > 0 or page.title == "Your machine"
        assert sheet.evaluate(UNSEEN) == []
        fold = sheet.locator("main details").first
        words = fold.locator("> :not(summary)").first
        assert not words.is_visible()
        fold.locator("summary").click()
        assert words.is_visible()
        section = sheet.locator(".contents a").last
        section.click()
        assert sheet.locator("h2", has_text=section.inner_text()).first.is_visible()
        if page is not book.pages[-1]:
            sheet.locator("a[rel=next]").click()
            sheet.wait_for_load_state()
    assert sheet.locator("a[rel=next]").count() == 0
    pictures.mkdir(parents=True, exist_ok=True)
    sheet.screenshot(path=pictures / "book-last-page.png")


def test_search_finds_a_section_and_goes_there(book, sheet, pictures):
    index = (book.out / "search-index.js").read_text("utf-8")
    sections = json.loads(index.partition(" = ")[2].rstrip(";\n"))["sections"]
    file, anchor, heading, _ = max(sections, key=lambda section: len(section[2]))
    sheet.goto((book.out / "index.html").as_uri())
    sheet.keyboard.press("/")
    sheet.keyboard.type(heading)
    hit = sheet.locator("#search li a").first
    assert hit.inner_text().endswith(heading)
    assert sheet.locator("#search mark").count() > 0
    sheet.screenshot(path=pictures / "book-search.png")
    hit.click()
    sheet.wait_for_url(f"**/{file}#*")
    title = sheet.locator(f"[id='{anchor}']")
    assert title.bounding_box()["y"] >= 0 and title.bounding_box()["y"] < 900
    sheet.keyboard.press("/")
    sheet.keyboard.type("异步计算 loop")
    assert sheet.locator("#search li").first.inner_text()
    sheet.locator("#search input").fill("thereisnosuchword")
    assert "Nothing has these words" in sheet.locator("#search").inner_text()
