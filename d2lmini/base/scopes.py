"""Scopes that Ctrl-C leaves as it found them.

A scope is a function, or the `_begin` of a class, that says how to undo a change before making it:

>>> class State: value = 1
>>> @scope
... def having(undo, value):
...     swap(undo, State, "value", value)
>>> with having(2):
...     State.value
2
>>> State.value
1

CPython runs a signal's handler, which may raise, after a call, at a jump and at the begin of a
function: also at the begin of `__exit__`, before any line of it could restore something. So the
`with` statement gets no method as its `__exit__` but a token of its own. The statement alone holds
the token. Interrupted at any instruction, the token is called or it dies, and either undoes what is
in its list, from the last entry to the first. An entry is called again if it was interrupted, so it
must do no harm twice.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import ContextDecorator, _GeneratorContextManager
from functools import partial, wraps
from typing import Any

Undo = list[Callable[[], object]]


class _Changes:
    """What a `with` statement has to undo."""

    __slots__ = ("undo",)

    def __init__(self) -> None:
        self.undo: Undo = []

    def restore(self) -> None:
        """Undo what is still to undo; the end of the scope does."""
        if _thread_state.loaded is self:
            _thread_state.loaded = None
        while self.undo:
            try:
                self.undo[-1]()
            except Exception:
                self.undo.pop()
                raise
            self.undo.pop()


class _ThreadState(threading.local):
    """loaded, scope: of the `with` statement that begins. entered: scopes that were entered by a
    call of `__enter__`, and what they have to undo."""

    loaded: _Changes | None = None
    scope: Any = None

    def __init__(self) -> None:
        self.entered: list[tuple[Any, _Changes]] = []


_thread_state = _ThreadState()


class Token(partial):
    """What a `with` statement calls at its end. `args[0]` has `restore`. No frame refers to the
    token, so no traceback keeps it alive."""

    def __del__(self) -> None:
        self.args[0].restore()


class Leaving(property):
    """The attribute `__exit__`; each `with` statement that reads it gets a token."""

    def __call__(self, scope: Any, *error: Any) -> Any:
        """For those who read it from the class, as `contextlib.ExitStack`."""
        return scope.__exit__(*error)


def _load(scope: Scope) -> Token:
    changes = _thread_state.loaded = _Changes()
    _thread_state.scope = scope
    return Token(_leave, changes, scope)


def _leave(changes: _Changes, scope: Scope, kind: Any = None, *error: object) -> None:
    if not changes.undo:
        entered = _thread_state.entered
        for i in reversed(range(len(entered))):
            if entered[i][0] is scope:
                changes.undo = entered.pop(i)[1].undo
                break
    try:
        if not interrupted(kind):
            scope.close()
    finally:
        changes.restore()
    scope.left(kind)


def interrupted(kind: type[BaseException] | None = None, *_: object) -> bool:
    """True if Ctrl-C ended the scope. One Ctrl-C shall be enough: such a scope waits for nothing at
    its end, and pending work goes on behind it, as after a plain wait that was interrupted."""
    return kind is not None and issubclass(kind, KeyboardInterrupt)


class Scope:
    """A scope; the class defines `_begin`. It can be entered again, also within itself."""

    __slots__ = ()

    __exit__: Any = Leaving(_load)

    def _begin(self, undo: Undo) -> Any:
        """Change something, after appending to `undo` what undoes it; returns the value of `as`."""
        raise NotImplementedError

    def close(self) -> None:
        """Called at the end, before all is undone, unless Ctrl-C ended the scope; may wait."""

    def left(self, kind: Any) -> None:
        """Called when all is undone; `kind`: of the exception that ended the scope, or None."""

    def __enter__(self) -> Any:
        changes = _thread_state.loaded
        if changes is not None and _thread_state.scope is self:
            _thread_state.loaded = _thread_state.scope = None
            return self._begin(changes.undo)
        changes = _Changes()
        value = self._begin(changes.undo)
        _thread_state.entered.append((self, changes))
        return value


def swap(undo: Undo, place: Any, name: str, value: Any) -> None:
    """Set an attribute; undoing sets the former value."""
    undo.append(partial(setattr, place, name, getattr(place, name)))
    setattr(place, name, value)


class _FunctionScope(Scope, ContextDecorator):
    def __init__(self, function: Callable[..., Any], args: tuple, options: dict[str, Any]):
        self.call = function, args, options

    def _begin(self, undo: Undo) -> Any:
        function, args, options = self.call
        return function(undo, *args, **options)


def scope(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: `function(undo, ...)` becomes a function that returns a scope."""

    @wraps(function)
    def make(*args: Any, **options: Any) -> Any:
        return _FunctionScope(function, args, options)

    shown = inspect.signature(function)
    without_undo = list(shown.parameters.values())[1:]
    make.__signature__ = shown.replace(parameters=without_undo)  # type: ignore[attr-defined]
    return make


#: `swapping(place, name, value)`: a scope with this value of an attribute.
swapping = scope(swap)


class _GeneratorScope(_GeneratorContextManager):
    __exit__: Any = Leaving(partial(Token, _GeneratorContextManager.__exit__))

    def restore(self) -> None:
        self.gen.close()


def contextmanager(function: Callable[..., Any]) -> Callable[..., Any]:
    """`contextlib.contextmanager`, whose generator ends at once if Ctrl-C interrupts the end of the
    scope. An interrupt within the generator's `finally` skips the rest: restore there by scopes."""

    @wraps(function)
    def make(*args: Any, **options: Any) -> Any:
        return _GeneratorScope(function, args, options)

    return make


def _end(scope: Standing, *error: Any) -> None:
    try:
        if not interrupted(*error):
            scope.close()
    finally:
        scope.restore()


class Standing(_Changes):
    """A scope that began when it was made, and stays if it is not used in a `with` statement. To
    begin, append to `undo` what undoes it and call `install`."""

    __slots__ = ()

    __exit__: Any = Leaving(partial(Token, _end))

    def __enter__(self) -> Any:
        return self

    def install(self, change: Callable[[], object]) -> None:
        """Call `change`; all is undone if Ctrl-C interrupts it."""
        try:
            change()
        except BaseException:
            self.restore()
            raise

    def close(self) -> None:
        """Called at the end, before all is undone, unless Ctrl-C ended the scope; may wait."""
