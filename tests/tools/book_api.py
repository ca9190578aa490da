"""The reference of the book: every public name with its call, its words and its place in the code.

The names are those of `public_names.py`, a page for each of its titles. Docstrings here are plain
text, so little is needed to show them: a paragraph stays one, what is indented or stands in columns
keeps its form, `>>>` is coloured as Python, and a name in backticks that has an entry leads there.

>>> html_of("Twice `x`.", {}.get)
'<p>Twice <code>x</code>.</p>'
>>> html_of("See `nd.dot`.", {"nd.dot": "api.nd.html#nd.dot"}.get)
'<p>See <a href="api.nd.html#nd.dot"><code>nd.dot</code></a>.</p>'
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import book_code
from public_names import SPACES, Entry, entries_of, module_of

Find = Callable[[str], "str | None"]  # a name -> where it is described
Section = tuple[str, str, str]  # anchor, heading, words

IN_COLUMNS = re.compile(r"\s*\S.*[^\s.] {2,}\S")

FIRST_PAGE = """
<p>Every public name, from the ground up, made from the docstrings of the code itself; what they
show after <code>&gt;&gt;&gt;</code> is run by the tests. A name stands under the module that a
program writes: <code>from d2lmini import nd, gluon</code>, then <code>nd.dot</code>,
<code>gluon.Trainer</code>. The link at its right leads to the line where it is defined.</p>
<p>Said once for all:</p>
<ul>
<li>Shapes, dtypes, contexts and attributes that do not fit raise MXNetError <em>at the call</em>;
an argument that is missing, unknown or of a kind that is not taken raises TypeError there.</li>
<li>What fails while it is computed is kept, and raised at every wait that meets it:
<code>asnumpy</code>, <code>asscalar</code>, <code>wait_to_read</code>, <code>print</code>,
<code>waitall</code>. The message names the operation and both lines.</li>
<li>Operations return at once; the arrays they return are filled later. Under
<code>autograd.record()</code> they are recorded, for <code>backward</code>.</li>
<li>Methods that a subclass is to write (<code>hybrid_forward</code>, <code>update</code>, ...)
raise NotImplementedError until it does. What MXNet has and d2lmini leaves out raises an error that
says so.</li>
</ul>
"""


@dataclass
class ApiPage:
    """A page of the reference, ready: `build_book.Page` for the template and the index."""

    name: str
    title: str
    body: str = ""
    contents: list[tuple[int, str, str]] = field(default_factory=list)  # level, id, text
    sections: list[Section] = field(default_factory=list)
    part = "reference"

    @property
    def file(self) -> str:
        return f"{self.name}.html"


def page_of(spaces: list[str]) -> str:
    """The name of the page on which these modules are described."""
    return f"api.{spaces[0].partition(':')[0]}"


# --- docstrings as HTML ---


def html_of(doc: str, find: Find, parameters: Collection[str] = ()) -> str:
    """A docstring as HTML; `find` says where a name is described. A parameter stands out where the
    docstring comes to it: "dtype: that of the source"."""
    html = "\n".join(_block(block, find) for block in _blocks(doc))
    if not parameters:
        return html
    each = "|".join(map(re.escape, parameters))
    named = rf"(?<![\w`.'\"])((?:{each})(?:, (?:{each}))*):(?=\s)"
    return re.sub(named, r"<b>\1</b>:", html)


def _blocks(doc: str) -> Iterator[list[str]]:
    """Lines that belong together: cut at blank lines, and where indented ones begin or end, except
    in lists and columns, whose long lines go on indented."""
    block: list[str] = []
    for line in [*doc.splitlines(), ""]:
        is_code = line.startswith(">>>")
        goes_on = any(each.startswith("- ") or IN_COLUMNS.match(each) for each in block)
        new_kind = line[:1].isspace() != "".join(block)[:1].isspace() and not goes_on
        in_example = block and block[0].startswith(">>>") and line
        if block and (not line or is_code or new_kind) and not in_example:
            yield block
            block = []
        if line:
            block.append(line)


def _block(lines: list[str], find: Find) -> str:
    if lines[0].startswith(">>>"):
        return book_code.session(lines)
    if all(line.startswith(("- ", "  ")) for line in lines) and lines[0].startswith("- "):
        items = "\n".join(lines)[2:].split("\n- ")
        return "<ul>" + "".join(f"<li>{_words(item, find)}</li>" for item in items) + "</ul>"
    if 2 * sum(bool(IN_COLUMNS.match(line)) or line[0] == " " for line in lines) >= len(lines):
        return f"<pre>{_words(inspect.cleandoc(chr(10) + chr(10).join(lines)), find)}</pre>"
    return f"<p>{_words(chr(10).join(lines), find)}</p>"


def _words(text: str, find: Find) -> str:
    def code(found: re.Match) -> str:
        address = find(found[1].removesuffix("()"))
        shown = f"<code>{found[1]}</code>"
        return f'<a href="{address}">{shown}</a>' if address else shown

    return re.sub(r"`([^`\n]+)`", code, escape(text, quote=False))


# --- entries as HTML ---


class Reference:
    """All pages of the reference. `source` says where a line of a file is shown."""

    def __init__(self, source: Callable[[Path, int], str]):
        self.source = source
        self.places: dict[str, str] = {}  # the path of an entry -> its address
        spaces = {title: names.split() for title, names in SPACES.items()}
        self.entries = {s: entries_of(s) for names in spaces.values() for s in names}
        for names in spaces.values():
            for space in names:
                plain = space.partition(":")[0]
                self.places[plain] = f"{page_of(names)}.html#module-{plain}"
                for entry in self.entries[space]:
                    for member in (entry, *entry.members):
                        self.places.setdefault(member.path, f"{page_of(names)}.html#{member.path}")
        self.pages = [self._page(title, names) for title, names in spaces.items()]
        self.pages.insert(0, self._first_page(spaces))

    def _finder(self, space: str, owner: str = "") -> Find:
        """Names as a docstring says them: in full, or as one beside it would."""

        def find(name: str) -> str | None:
            for place in (f"{space}.{owner}.{name}", f"{space}.{name}", name):
                if place in self.places and re.fullmatch(r"[\w.]+", name):
                    return self.places[place]
            return None

        return find

    def _first_page(self, spaces: dict[str, list[str]]) -> ApiPage:
        rows = []
        for title, names in spaces.items():
            shown = sum(len(self.entries[name]) for name in names)
            modules = ", ".join(f"<code>{n.partition(':')[0]}</code>" for n in names)
            link = f'<a href="{page_of(names)}.html">{escape(title)}</a>'
            rows.append(f"<tr><td>{link}</td><td>{modules}</td><td>{shown}</td></tr>")
        head = "<tr><th>page</th><th>modules</th><th>names</th></tr>"
        title = "Reference"
        body = f"<h1>{title}</h1>{FIRST_PAGE}<table>{head}{''.join(rows)}</table>"
        return ApiPage("api", title, body, sections=[("", title, text_of(FIRST_PAGE))])

    def _page(self, title: str, names: list[str]) -> ApiPage:
        page = ApiPage(page_of(names), title)
        page.sections.append(("", title, ""))
        page.body = f"<h1>{escape(title)}</h1>\n" + "".join(
            html for space in names for html in self._space(page, space)
        )
        return page

    def _space(self, page: ApiPage, space: str) -> Iterator[str]:
        """A module: what its docstring says, a list of its names, then each of them."""
        module, entries = module_of(space), self.entries[space]
        doc = inspect.cleandoc(module.__doc__ or "") if inspect.ismodule(module) else ""
        name = space.partition(":")[0]
        page.contents.append((2, f"module-{name}", name))
        page.sections.append((f"module-{name}", name, doc))
        yield f'<h2 id="module-{name}"><code>{name}</code></h2>\n'
        yield html_of(doc, self._finder(space))
        links = (f'<a href="#{e.path}">{e.name}</a>' for e in entries)
        yield f'<p class="names">{" ".join(links)}</p>\n'
        for entry in entries:
            yield from self._entry(page, entry, 3)
            for member in entry.members:
                if says_more(member):
                    yield from self._entry(page, member, 4)
                else:  # a link to it leads to its class
                    yield f'<span id="{member.path}"></span>'

    def _entry(self, page: ApiPage, entry: Entry, level: int) -> Iterator[str]:
        shown, doc = entry.path if level == 3 else entry.name, entry.doc
        if entry.kind == "value":  # a dict, an engine: what its class says is not said of it
            doc = ""
        elif entry.kind == "module":
            doc = doc.partition("\n\n")[0]
        page.contents.append((level, entry.path, shown))
        page.sections.append((entry.path, shown, f"{entry.usage} {' '.join(entry.also)} {doc}"))
        place = ""
        if entry.place:
            file, line = entry.place
            place = f'<a class="place" href="{self.source(file, line)}">{file.name}:{line}</a>'
        yield f'<h{level} id="{entry.path}"><code>{shown}</code> {place}</h{level}>\n'
        yield f'<div class="entry {entry.kind}">{self._call(entry)}'
        owner = entry.name.rpartition(".")[0] or entry.name
        yield html_of(doc, self._finder(entry.space, owner), entry.parameters) + "</div>\n"

    def _call(self, entry: Entry) -> str:
        if entry.kind in ("module", "value"):
            return ""
        call = entry.usage + (f" -> {entry.returns}" if entry.returns else "")
        if entry.kind == "class":
            call = f"class {call}"
        also = f"<p>Also: {', '.join(f'<code>{n}</code>' for n in entry.also)}</p>"
        return book_code.block(call) + (also if entry.also else "")


def says_more(member: Entry) -> bool:
    """Is there something in its words that no base class has said already?"""
    name = member.name.rpartition(".")[2]
    if not getattr(member.value, "__doc__", None):
        return False
    bases = member.owner.__mro__[1:]
    said = {inspect.getdoc(vars(base)[name]) for base in bases if name in vars(base)}
    return inspect.getdoc(member.value) not in said


def text_of(html: str) -> str:
    """The words of a little HTML."""
    return re.sub(r"<[^>]+>", "", html)
