"""What the chapters' test compares of a text: everything but times."""

from __future__ import annotations

import re
from pathlib import Path

from nbval.plugin import get_sanitize_patterns

CONFIG = Path(__file__).parents[2] / "chapters" / "nbval_sanitize.cfg"


def sanitize(text: str) -> str:
    for regex, replacement in get_sanitize_patterns(CONFIG.read_text(encoding="ascii")):
        text = re.sub(regex, replacement, text)
    return text
