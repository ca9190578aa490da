"""What all widgets share: show, update, receive messages, close; a picture beneath.

A widget in Python:

    class Clock(Widget):
        script = "clock"                    # widgets/js/clock.js
        words = "clock"                     # text/plain: the same in every run, for nbval

        def changes(self):                  # called 10 times a second while live: what is new
            return {"s": time.time()}, []   # a dict for JSON, buffers (bytes, arrays); or None
        def whole(self):                    # the complete state, for a view that has none yet
            return {"s": time.time()}, []
        def received(self, message):        # a message from the view: model.send({...})
            ...
        def picture(self):                  # a draw.picture.Picture, or None
            return timeline(...)

    clock = Clock()
    clock.show()        # outside a notebook nothing happens; everything else works the same
    clock.live()        # from now on changes() is sent
    clock.still()       # stop sending; the notebook stores the last picture
    clock.say({...})    # send a message at once, from any thread

`changes`, `whole` and `received` are called on the refresher's thread, one after the other: they
need no locks among themselves, must be quick and must not wait for arrays.

The same widget in JavaScript, `js/clock.js` (`js/shared.js` is prepended; its functions are
available):

    // The state of all views of this widget takes a message; header.whole marks the complete state.
    function take(clock, header, buffers) {
      clock.s = header.s;
    }
    // A view in the element `el`; style.css has the colours.
    function build(clock, model, el) {
      const update = () => { el.textContent = clock.s; };
      update();
      return { update };
    }
    export default widgetOf(() => ({ s: 0 }), take, build);

A view may start late (the first takes a second to load, a page is loaded again), and its first
message may arrive only after the cell has ended (ipykernel 7.4). So until a view has reported, the
complete state is sent once a second, and changes in between; a view that missed a message takes
nothing until it receives the complete state.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from d2lmini.widgets import refresher

if TYPE_CHECKING:
    from d2lmini.draw.picture import Picture

#: A message: a dict for JSON, and bytes or arrays beside it.
Message = tuple[dict[str, Any], Sequence[Any]]

#: This many widgets are kept for their views; of older ones only the picture remains.
KEPT = 16

#: Beats between two complete states until a view has reported.
WHOLE_EVERY = 10

_JS = Path(__file__).parent / "js"

_shown: deque[Widget] = deque()


class Widget:
    """A live view of something; see above. Only `show` needs a notebook."""

    #: The ES module in widgets/js, without its ending; the text beside the picture.
    script: ClassVar[str]
    words: str

    def __init__(self) -> None:
        self._front: Any = None  # the ipywidgets widget, once shown
        self._views: list[Any] = []  # handles of its outputs in the notebook
        self._pictures: list[Any] = []
        self._stored: tuple[dict[str, Any], dict[str, Any]] = {}, {}  # what these show
        self._shown_in: str | None = None  # the last run of a cell that shows it
        self._closed = False
        self._sending = threading.Lock()
        self._sent = 0
        self._beats = 0
        self._heard = False  # has a view reported?

    # -- what a widget overrides -------------------------------------------------------------------

    def changes(self) -> Message | None:
        """What is new since the last call."""
        return None

    def whole(self) -> Message | None:
        """The complete state; a view ignores changes until it has received the complete state."""
        return None

    def received(self, message: dict[str, Any]) -> None:
        """Handle a message from a view."""

    def picture(self) -> Picture | None:
        """The picture that remains when the widget is not live; None: nothing to show yet."""
        return None

    def below(self) -> str:
        """HTML that a saved notebook shows below the picture."""
        return ""

    # -- what it is used by ------------------------------------------------------------------------

    def show(self) -> None:
        """Display the widget below the running cell of a notebook; elsewhere do nothing.

        The view and the picture are two outputs, one right after the other: where the view cannot
        run (no kernel, a code host) the picture is still visible. While the view runs, style.css
        hides the picture. When a view has reported, the picture is stored as HTML too, with a style
        (stored.css) that hides what JupyterLab writes in the place of a view without a kernel:
        "model not found"."""
        if not in_notebook():
            return
        display = importlib.import_module("IPython.display").display
        self._shown_in = _execution()
        self._views.append(display(self._view(), raw=True, display_id=True))
        self._stored = self._still()
        data, metadata = self._to_store()
        self._pictures.append(display(data, metadata=metadata, raw=True, display_id=True))
        _keep(self)

    def live(self) -> None:
        """Start to send changes."""
        refresher.add(self)

    def still(self) -> None:
        """Stop sending changes; the notebook's output becomes the present picture."""
        refresher.remove(self)
        refresher.call(self.say_whole)
        self.update_picture()

    def close(self) -> None:
        """Close the view; the picture replaces it. Closing twice does no harm."""
        refresher.remove(self)
        self._closed = True
        front, self._front = self._front, None
        if self in _shown:
            _shown.remove(self)
        self.update_picture()
        for handle in self._views:
            handle.update(self._view(), raw=True)
        if front is not None:
            front.close()

    def update_picture(self) -> None:
        """Store the present picture in the notebook."""
        if self._pictures:
            self._stored = self._still()
            self._store()

    def _store(self) -> None:
        data, metadata = self._to_store()
        for handle in self._pictures:
            handle.update(data, metadata=metadata, raw=True)

    def say(self, header: dict[str, Any], buffers: Sequence[Any] = (), whole: bool = False) -> None:
        """Send a message to the views, from any thread; without a view nothing happens."""
        front = self._front
        if front is not None:
            with self._sending:
                self._sent += 1
                front.send({**header, "n": self._sent, "whole": whole}, list(buffers))

    def say_whole(self) -> None:
        """Send the complete state, on the refresher's thread."""
        if self._front is not None and (message := self.whole()) is not None:
            self.say(*message, whole=True)

    def answer(self, message: dict[str, Any]) -> None:
        """Called on the refresher's thread with a message from a view: its first, or `received`."""
        if message.get("kind") != "ready":
            self.received(message)
            return
        first, self._heard = not self._heard, True
        self.say_whole()
        if first and self._pictures:
            self._store()

    def beat(self) -> None:
        """Called by the refresher: send the changes, or the complete state if no view has
        reported."""
        news = self.changes()
        if not self._heard and self._beats % WHOLE_EVERY == 0 and self._front is not None:
            self.say_whole()
        elif news is not None:
            self.say(*news)
        self._beats += 1

    # -- what a notebook asks ----------------------------------------------------------------------

    def _view(self) -> dict[str, Any]:
        """The output that a notebook shows while there is a kernel, by MIME type. ImportError if
        the `lab` extra is not installed."""
        if self._closed:
            return {"text/plain": repr(self)}
        if self._front is None:
            self._front = _front_class(self.script)()
            # ipywidgets keeps every front alive; the front must not keep this widget alive.
            self._front.on_msg(functools.partial(_on_message, weakref.ref(self)))
        view = {"version_major": 2, "version_minor": 0, "model_id": self._front.model_id}
        return {"text/plain": repr(self), "application/vnd.jupyter.widget-view+json": view}

    def _still(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The output that remains: (data, metadata). The text does not depend on the picture."""
        picture = self.picture()
        return ({"text/plain": ""}, {}) if picture is None else picture.bundle("")

    def _to_store(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The last picture, as HTML too if a view has reported."""
        data, metadata = self._stored
        if not self._heard:
            return data, metadata
        image = ""
        if "image/png" in data:
            places = "".join(f' {k}="{metadata["image/png"][k]}"' for k in ("width", "height"))
            source = f"data:image/png;base64,{data['image/png']}"
            image = f'<img alt="{escape(self.words)}"{places} src="{source}">'
        style = f"<style>\n{_read('stored.css')}</style>"
        html = f'{style}\n<div class="d2l-stored">{image}{self.below()}</div>'
        return {**data, "text/html": html}, metadata

    def _ipython_display_(self) -> None:
        if not in_notebook():
            print(repr(self))
        elif self._shown_in is None or self._shown_in != _execution():
            self.show()  # else this cell already shows the widget

    def __repr__(self) -> str:
        return f"<{self.words}>"


def need(package: str) -> Any:
    """Import a package of the `lab` extra; ImportError that says how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError as problem:
        raise ImportError(
            f"live views need the package {package!r}, which is not installed; "
            "run: pip install 'd2lmini[lab]'"
        ) from problem


def in_notebook() -> bool:
    """True if this runs in a Jupyter kernel. (Terminal IPython and scripts have no front end.)"""
    return _kernel() is not None


def _kernel() -> Any:
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None)


def _execution() -> str | None:
    """Identifies the run of a cell: the number of the execution request. (Cell counts do not
    advance where history is off, as when nbval runs the cells.)"""
    kernel = _kernel()
    request = kernel.get_parent() if hasattr(kernel, "get_parent") else {}
    number: str | None = request.get("header", {}).get("msg_id")
    return number


@functools.cache
def _front_class(script: str) -> Any:
    """The anywidget class of an ES module: the shared functions and styles come before its own."""
    anywidget = need("anywidget")
    styles = "\n".join(map(_read, ("style.css", f"{script}.css", "stored.css")))
    members = {"_esm": _read("shared.js") + _read(f"{script}.js"), "_css": styles}
    return type(f"d2lmini_{script}", (anywidget.AnyWidget,), members)


@functools.cache
def _read(name: str) -> str:
    """The text of a file of `js`; "" for a widget without styles of its own."""
    path = _JS / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _keep(widget: Widget) -> None:
    """Keep the widget behind a view alive, to fill the view again when the page is reloaded; the
    oldest widgets are closed and leave their pictures."""
    if widget not in _shown:
        _shown.append(widget)
    while len(_shown) > KEPT:
        _shown.popleft().close()


def _on_message(ref: weakref.ref[Widget], _: Any, message: Any, buffers: Any) -> None:
    """Handle a message, on whatever thread it arrived: pass it to the refresher's thread."""
    widget = ref()
    if widget is not None:
        refresher.call(functools.partial(widget.answer, message))
