"""What IPython and Jupyter show: short tracebacks, pending work after Stop, help for operators.

A traceback shows the lines of the program and hides those of this library (`%xmode --show` shows
them, `%xmode --hide` hides them again; `%debug` always sees them). Python outside IPython prints
all lines. After KeyboardInterrupt one line says what is still queued. A missing name is compared
with the names that exist. `nd.dot?` shows the docstring and `nd.dot??` the source of the
operator's computation or formula, instead of the class of operators.

`d2lmini/__init__.py` imports this module only if IPython runs. The module replaces two methods of
the running shell: `InteractiveTB.structured_traceback` and `inspector.info`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from d2lmini import engine
from d2lmini.base import callsite, suggest
from d2lmini.base.scopes import contextmanager
from d2lmini.engine import pending
from d2lmini.ops.core import Op

#: Lines of code that a traceback shows for each frame of the program: the line before, and the line
#: itself. IPython's own number is 5.
CONTEXT = 2

_HEADER = "(most recent call last)"
_HEADER_WITHOUT_LIBRARY = "(without d2lmini's frames: %xmode --show)"


def install() -> None:
    """Install this module in the IPython shell that runs, once."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and not hasattr(shell, "_d2lmini"):
        shell._d2lmini = True
        _replace_tracebacks(shell.InteractiveTB)
        _replace_info(shell.inspector)


# -- tracebacks ------------------------------------------------------------------------------------


def _replace_tracebacks(tracebacks: Any) -> None:
    show = tracebacks.structured_traceback

    def structured_traceback(*args: Any, **options: Any) -> Any:
        # Plain tracebacks of chained exceptions come here again, with a tuple for the traceback.
        if len(args) < 3 or isinstance(args[2], tuple):
            return show(*args, **options)
        _, error, traceback, *others = args
        if tracebacks.skip_hidden:
            lines = _show_short(show, error, traceback, others, options)
        else:
            lines = show(*args, **options)
        return [*lines, *_notes_on(error)]

    tracebacks.structured_traceback = structured_traceback


def _show_short(show: Any, error: Any, traceback: Any, others: list[Any], options: Any) -> list:
    """The lines of the traceback without the frames of this library."""
    short = without_library(traceback)
    with _shortened_causes(error):
        if short is traceback:
            return show(type(error), error, traceback, *others, **options)
        offset = others[0] if others else options.get("tb_offset")
        lines = show(type(error), error, short, offset, CONTEXT)
    head = [line.replace(_HEADER, _HEADER_WITHOUT_LIBRARY) for line in lines[:2]]
    return [*head, *lines[2:]]


def without_library(traceback: TracebackType | None) -> TracebackType | None:
    """`traceback` without the frames of this library, and without those of the standard library and
    of installed packages next to them; `traceback` itself if it has none."""
    kept: list[TracebackType] = []
    between: list[TracebackType] = []  # since the last frame of the program
    found = in_library = False
    step = traceback
    while step is not None:
        between.append(step)
        if callsite.is_ours(step.tb_frame):
            found = in_library = True
        elif callsite.is_users_own(step.tb_frame):
            kept += between[-1:] if in_library else between
            between, in_library = [], False
        step = step.tb_next
    if not found:
        return traceback
    short: TracebackType | None = None
    for step in reversed(kept if in_library else [*kept, *between]):
        short = TracebackType(short, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return short


@contextmanager
def _shortened_causes(error: BaseException | None) -> Iterator[None]:
    """A scope in which the tracebacks of the exceptions that led to `error` are short."""
    whole: dict[BaseException, TracebackType | None] = {}
    cause = error and (error.__cause__ or error.__context__)
    while cause is not None and cause not in whole:
        whole[cause] = cause.__traceback__
        cause = cause.__cause__ or cause.__context__
    try:
        for cause, traceback in whole.items():
            cause.__traceback__ = without_library(traceback)
        yield
    finally:
        for cause, traceback in whole.items():
            cause.__traceback__ = traceback


def _notes_on(error: BaseException | None) -> list[str]:
    """Lines to show below an error."""
    text = ""
    if isinstance(error, KeyboardInterrupt):
        text = pending.describe_work(engine.current)
    elif isinstance(error, AttributeError) and "did you mean" not in str(error):
        text = _suggest_attribute(error).removeprefix("; ")
    return [text] if text else []


def _suggest_attribute(error: AttributeError) -> str:
    """The close names, if an object of this library does not have the attribute."""
    owner, name = getattr(error, "obj", None), getattr(error, "name", None)
    module = getattr(owner, "__name__", None) if inspect.ismodule(owner) else type(owner).__module__
    if name is None or not str(module).startswith("d2lmini"):
        return ""
    return suggest(name, dir(owner))


# -- help ------------------------------------------------------------------------------------------


def _replace_info(inspector: Any) -> None:
    find_info = inspector.info

    def info(value: Any, *args: Any, **options: Any) -> Any:
        found = find_info(value, *args, **options)
        op = value if isinstance(value, Op) else getattr(value, "__wrapped__", None)
        if isinstance(op, Op):  # describe the operator instead of its class
            computation = op.formula or op.compute
            found.update(
                type_name="operator", string_form=None, call_def=None, class_docstring=None,
                file=inspect.getsourcefile(computation), docstring=inspect.getdoc(op), source=None,
            )  # fmt: skip
            if args[2] if len(args) > 2 else options.get("detail_level", 0):
                found["source"] = inspect.getsource(computation)
        return found

    inspector.info = info
