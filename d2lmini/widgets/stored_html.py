"""The HTML that a notebook stores for a widget that was shown: its picture and what stands below.

A saved notebook has two outputs for each widget, the view and the picture (`base.py`). When the
notebook is opened again the widget's kernel is gone, and JupyterLab writes "model not found" where
the view was. The style in this HTML (`js/stored.css`) hides that line. The HTML is stored only
after a view has reported, so the outputs of a run without a browser do not have it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from html import escape
from pathlib import Path

_STYLE = Path(__file__).parent / "js" / "stored.css"


@functools.cache
def style() -> str:
    """The rules for stored pictures."""
    return _STYLE.read_text(encoding="utf-8")


def stored_html(words: str, image: str | None, size: dict[str, int], below: str) -> str:
    """A picture (base64 of a PNG, or None) described by `words`, and HTML below it."""
    picture = ""
    if image is not None:
        places = f' width="{size["width"]}" height="{size["height"]}"'
        source = f"data:image/png;base64,{image}"
        picture = f'<img alt="{escape(words)}"{places} src="{source}">'
    return f'<style>\n{style()}</style>\n<div class="d2l-stored">{picture}{below}</div>'


def table_html(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with these texts."""

    def row(tag: str, words: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(word)}</{tag}>" for word in words) + "</tr>"

    body = "".join(row("td", words) for words in rows)
    return f"<table><thead>{row('th', head)}</thead><tbody>{body}</tbody></table>"
