"""What the chapters' test compares of a text: everything but times."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

CONFIG = Path(__file__).parents[2] / "chapters" / "nbval_sanitize.cfg"


@cache
def patterns() -> list[tuple[str, str]]:
    """As nbval reads them; it takes long to import."""
    from nbval.plugin import get_sanitize_patterns

    return list(get_sanitize_patterns(CONFIG.read_text(encoding="ascii")))


def sanitize(text: str) -> str:
    for regex, replacement in patterns():
        text = re.sub(regex, replacement, text)
    return text
