"""The functions that are active at each slice of a thread, and the lines of the user's program.

Profilers of other libraries record the *function* in which an operation was issued, by its file
and first line, and not the line. `SourceLines` finds the line in the source, if the file lies
beside the trace or in the working folder and is the one that ran: the function must begin at the
recorded line. There it looks for the calls of what was called. If one line calls it, that is the
line; else the function is all that is known.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from d2lmini.base.callsite import RecordedCode, Site
from d2lmini.profiler.foreign.events import Slice

#: What a program may write to call a method.
SPELLINGS = {
    "item": ("item", "float", "int", "bool", "tolist"),
    "_item": ("item",),
    "__float__": ("float",),
    "__int__": ("int",),
    "__bool__": ("bool",),
    "__array__": ("asarray", "array"),
}


class Frame(NamedTuple):
    """A Python function: its file, its first line (of a module: unknown), its name."""

    file: str
    line: int
    name: str


class Call(NamedTuple):
    """A place of the user's program: the function, and the names of what it called there, the
    outermost first."""

    frame: Frame
    callees: tuple[str, ...]


def walk_stack(slices: Iterable[Slice]) -> Iterator[tuple[Slice, list[Slice]]]:
    """Each slice of one thread with those that enclose it, the outermost first; valid until the
    next step."""
    stack: list[Slice] = []
    for slice in slices:
        while stack and stack[-1].end_ns <= slice.begin_ns:
            stack.pop()
        yield slice, stack
        stack.append(slice)


def find_call(
    stack: Iterable[Slice],
    function_of: Callable[[Slice], tuple[Frame | None, str] | None],
    last: str = "",
) -> Call | None:
    """The place in the user's program: its innermost function, and what that function called, the
    outermost first, then `last`.

    function_of: the function that a slice is, if it is the user's, and its name; None: it is none
    """
    frame: Frame | None = None
    callees: list[str] = []
    for own, name in filter(None, map(function_of, stack)):
        frame, callees = (frame, [*callees, name]) if own is None else (own, [])
    return None if frame is None else Call(frame, (*callees, *filter(None, [last])))


def is_standard(file: str) -> bool:
    """Is it a file of Python's own library, named relative to it or by its full path?"""
    first = file.replace("\\", "/").split("/")[0].removesuffix(".py")
    standard = os.path.dirname(os.__file__)
    return first in sys.stdlib_module_names or file.startswith((standard, "<frozen", "<string>"))


class SourceLines:
    """Finds the lines of calls. All calls are added first (`add`), because a name that one call
    accounts for is not what another call looks for; `site` is asked afterwards."""

    def __init__(self, folders: Iterable[str]):
        self._folders = list(dict.fromkeys(folders))
        self._seen: dict[Frame, set[str]] = {}
        self._sites: dict[tuple[str, int, str], Site] = {}
        self._calls_of = lru_cache(None)(self._find_calls)

    def add(self, call: Call | None) -> None:
        """Note that the program made this call."""
        if call is not None:
            self._seen.setdefault(call.frame, set()).update(call.callees)

    @lru_cache(None)  # noqa: B019
    def site(self, call: Call | None) -> Site | None:
        """The line of a call as a site; None for no call."""
        if call is None:
            return None
        frame = call.frame
        calls = self._calls_of(frame)
        for name in call.callees:
            for spelling in SPELLINGS.get(name, (name,)):
                lines = {line for called, line in calls if called == spelling}
                if len(lines) == 1:
                    return self._at(frame, lines.pop())
                if lines:
                    return self._function(frame)
        # Something without a name of its own, such as a Module: the one line that nothing explains.
        seen = self._seen.get(frame, set())
        known = seen | {s for name in seen for s in SPELLINGS.get(name, ())} | set(dir(builtins))
        lines = {line for called, line in calls if called not in known}
        return self._at(frame, lines.pop()) if len(lines) == 1 else self._function(frame)

    def _function(self, frame: Frame) -> Site:
        return self._make(frame.file, frame.line, f"in {frame.name}")

    def _at(self, frame: Frame, line: int) -> Site:
        source = self._source(frame.file) or ""
        return self._make(frame.file, line, source.splitlines()[line - 1].strip())

    def _make(self, file: str, line: int, text: str) -> Site:
        key = file, line, text
        if key not in self._sites:
            code = RecordedCode()
            code.lines[0] = line, f"{file}:{line}: {text}"
            self._sites[key] = code, 0
        return self._sites[key]

    def _source(self, file: str) -> str | None:
        for folder in self._folders:
            path = os.path.join(folder, file)  # which a full path replaces
            if os.path.isfile(path):
                try:
                    with open(path, encoding="utf-8") as opened:
                        return opened.read()
                except (OSError, UnicodeDecodeError):
                    return None
        return None

    def _find_calls(self, frame: Frame) -> list[tuple[str, int]]:
        """(name, line) of each call in the function's own body; none if the source is not there,
        or is another one than ran."""
        source = self._source(frame.file)
        try:
            tree = None if source is None else ast.parse(source)
        except SyntaxError:
            tree = None
        if tree is None:
            return []
        body: ast.AST | None = tree
        if frame.name != "<module>":
            body = next((node for node in ast.walk(tree) if _is_function(node, frame)), None)
        return [] if body is None else list(_calls_in(body))


def _is_function(node: ast.AST, frame: Frame) -> bool:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return node.name == frame.name and first == frame.line


def _calls_in(node: ast.AST) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(child, ast.Call):
            name = str(getattr(child.func, "attr", getattr(child.func, "id", "")))
            yield name, child.lineno
        yield from _calls_in(child)
