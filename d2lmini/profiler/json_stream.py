"""JSON files read one element at a time, so that a large trace needs little memory.

    for key, value in read_members("trace.json.gz"):
        ...

gives the members of the file's object in their order: of an array one element after the other, of
everything else the whole value. A file that is an array, as the Trace Event Format allows, has
"traceEvents" as its only key, and its closing bracket may be missing. A compressed file is known by
its first bytes.

`check` says whether a value is what a reader expects, before anything is made of it.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, Any, NoReturn

from d2lmini.base import MXNetError

_PIECE = 1 << 17
_SPACE = re.compile(r"[ \t\r\n]*")


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


_decode = json.JSONDecoder(parse_constant=_refuse).raw_decode


class _Text:
    """The text of a file, of which `at` is the next character that is not read yet."""

    def __init__(self, file: IO[str]):
        self._file = file
        self._text = ""
        self.at = 0
        self._ended = False

    def _read_more(self) -> bool:
        """Get more characters, twice as many as are left; False at the end of the file."""
        self._text = self._text[self.at :]
        self.at = 0
        piece = self._file.read(max(_PIECE, len(self._text)))
        self._text += piece
        self._ended = not piece
        return not self._ended

    def next(self) -> str:
        """The next character that is not space, which stays the next; "" at the end."""
        while True:
            space = _SPACE.match(self._text, self.at)
            assert space is not None
            self.at = space.end()
            if self.at < len(self._text) or not self._read_more():
                return self._text[self.at : self.at + 1]

    def skip(self, expected: str) -> None:
        """Skip one character, which is one of `expected`."""
        found = self.next()
        if not found or found not in expected:
            got = repr(self._text[self.at : self.at + 20]) if found else "the end of the file"
            raise ValueError(f"expected {' or '.join(expected)}, got {got}")
        self.at += 1

    def value(self) -> Any:
        """Read a value."""
        self.next()
        while True:
            try:
                value, end = _decode(self._text, self.at)
                # A number may go on in the next piece of the file.
                if end < len(self._text) or self._ended or not self._read_more():
                    self.at = end if self._ended or end < len(self._text) else self.at
                    return value
            except ValueError:
                if self._ended or not self._read_more():
                    raise


def read_members(path: str | os.PathLike[str]) -> Iterator[tuple[str, Any]]:
    """(key, value) of the file's object, array elements one by one. MXNetError if the file is not
    JSON, or is cut off; OSError if it cannot be read."""
    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        content: Any = gzip.GzipFile(fileobj=raw) if packed else raw
        with io.TextIOWrapper(content, encoding="utf-8") as file:
            try:
                yield from _members(_Text(file))
            except (ValueError, EOFError, zlib.error, OSError, RecursionError) as problem:
                raise MXNetError(
                    f"{os.fspath(path)} is not a whole JSON file: {problem}"
                ) from problem


def is_time(value: Any) -> bool:
    """A number of microseconds, of 30 years at most."""
    return type(value) in (int, float) and abs(value) < 1e15


def is_whole(value: Any) -> bool:
    """A whole number of 64 bits, of either sign."""
    return type(value) is int and abs(value) < 1 << 62


def is_few(value: Any) -> bool:
    """A number of workers, threads, ranks or devices."""
    return type(value) is int and 0 <= value < 1 << 16


def fits(value: Any, form: Any) -> bool:
    """Has a value this form? A type (int: not negative; float: any finite number), None, a function
    that says so, a tuple of alternatives, a list of one form for all elements or of one for each,
    or {str: form}."""
    if isinstance(form, tuple):
        return any(fits(value, one) for one in form)
    if isinstance(form, list):
        forms = form * len(value) if isinstance(value, list) and len(form) == 1 else form
        return isinstance(value, list) and len(value) == len(forms) and all(map(fits, value, forms))
    if isinstance(form, dict):
        return isinstance(value, dict) and all(fits(v, form[str]) for v in value.values())
    if form is int or form is float:
        number = type(value) is int or (form is float and type(value) is float)
        return number and (0 <= value < 1 << 62 if form is int else abs(value) < 1e300)
    return (
        value is None
        if form is None
        else type(value) is form or (not isinstance(form, type) and form(value))
    )


def check(record: Any, forms: Mapping[str, Any]) -> None:
    """ValueError unless this is an object, whose members have their forms."""
    if not isinstance(record, dict):
        raise ValueError(f"expected an object, got {repr(record)[:60]}")
    for key, value in record.items():
        if key in forms and not fits(value, forms[key]):
            raise ValueError(f"{key} is {repr(value)[:60]}, which it cannot be")


def _members(text: _Text) -> Iterator[tuple[str, Any]]:
    if text.next() == "[":
        for event in _elements(text, closed=False):
            yield "traceEvents", event
        return
    text.skip("{")
    while text.next() != "}":
        key = text.value()
        text.skip(":")
        if text.next() == "[":
            for element in _elements(text, closed=True):
                yield key, element
        else:
            yield key, text.value()
        if text.next() != "}":
            text.skip(",")
    text.skip("}")


def _elements(text: _Text, closed: bool) -> Iterator[Any]:
    text.skip("[")
    while text.next() != "]":
        if not (closed or text.next()):
            return
        yield text.value()
        if text.next() == ",":
            text.skip(",")
        elif text.next() != "]" and (closed or text.next()):
            text.skip(",]")
    text.skip("]")
