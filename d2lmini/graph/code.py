"""The code of a program's text: texts that differ in their numbers alone are compiled once.

A net that meets ever new shapes gets a program for each: the same lines with other sizes. Python
takes about as long to compile a text as all passes take. So a text is compiled with marks in the
place of its numbers, and the numbers are put into the code:

>>> for n in (3, 5):
...     space = {}
...     exec(code_of(f"def f(x):\\n    return x + {n}, (0, -{n})  # n", "a file"), space)
...     print(space["f"](1))
(4, (0, -3))
(6, (0, -5))
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from types import CodeType
from typing import Any

#: The mark of the first number; no text has numbers as large as the marks.
FIRST_MARK = 10**15

#: So many codes are kept, those that were used last.
MOST = 256

#: Numbers, and names with an underscore before, behind what may stand before an operand.
_WORDS = re.compile(r"([ (\[{=:,*/+-])(\d[\w.]*(?:(?<=\de)[-+]\d+)?|_\w*)")
_MARKS = re.compile(r"(?:_number_*)?(1000000000\d{6})(?:[.]0)?")


def code_of(text: str, file: str, names: Collection[str] = ()) -> CodeType:
    """The code of a text as that of a file. names: variables of the text that are named after
    numbers, so that other texts have others in their place."""
    words: list[str] = []
    marks: dict[str, str] = {}  # of names; a number has another mark wherever it stands
    prefix = "_number"
    while prefix in text:
        prefix += "_"

    def mark(found: re.Match[str]) -> str:
        before, word = found.groups()
        if word[0] == "_" and word not in names:
            return before + word
        known = marks.get(word)
        if known is None:
            known = str(FIRST_MARK + len(words))
            words.append(word)
            if word[0] == "_":
                known = marks[word] = prefix + known
            elif not word.isdigit():
                known += ".0"
        return before + known

    code = _compile(_WORDS.sub(mark, text))
    if code is None:
        return compile(text, file, "exec")
    return _fill(code, words, file)  # type: ignore[no-any-return]


def _fill(value: Any, words: list[str], file: str) -> Any:
    """A constant with the words in the place of their marks; a code as that of the file."""
    kind = type(value)
    if kind is CodeType:
        return value.replace(co_filename=file, co_consts=_fill(value.co_consts, words, file))
    if kind is tuple:
        return tuple([_fill(part, words, file) for part in value])
    if kind is slice:  # a constant since Python 3.14
        return slice(*_fill((value.start, value.stop, value.step), words, file))
    if kind is str:  # such as the source of a kernel
        return _MARKS.sub(lambda found: words[int(found[1]) - FIRST_MARK], value)
    if kind in (int, float) and abs(value) >= FIRST_MARK:
        number = kind(words[int(abs(value)) - FIRST_MARK])
        return number if value > 0 else -number
    return value


@lru_cache(MOST)
def _compile(pattern: str) -> CodeType | None:
    """The code of a text with marks; None if Python computed with one of them, as in "3 * 4"."""
    code = compile(pattern, "", "exec")
    return code if _marks_in(code) >= {*_MARKS.findall(pattern)} else None


def _marks_in(value: Any) -> set[str]:
    """The marks in the constants and the names of a code."""
    if isinstance(value, CodeType):
        value = (*value.co_consts, *value.co_names, *value.co_varnames, *value.co_cellvars)
    if isinstance(value, slice):
        value = value.start, value.stop, value.step
    if isinstance(value, tuple):
        return {mark for part in value for mark in _marks_in(part)}
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return {*_MARKS.findall(str(value).lstrip("-"))}
