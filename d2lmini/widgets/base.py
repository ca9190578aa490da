"""What all widgets share: shown in a notebook, kept up to date, asked; a picture beneath.

How a widget is made, in Python:

    class Clock(Widget):
        script = "clock"                    # widgets/js/clock.js
        words = "clock"                     # text/plain: the same in every run, for nbval

        def changes(self):                  # 10 times a second while it is live: the news
            return {"s": time.time()}, []   # a dict for JSON, buffers (bytes, arrays); None: none
        def whole(self):                    # all that a view needs that knows nothing yet
            return {"s": time.time()}, []
        def received(self, message):        # what the view sent: model.send({...})
            ...
        def picture(self):                  # a draw.picture.Picture, or None
            return timeline(...)

    clock = Clock()
    clock.show()        # outside a notebook nothing happens; everything else works the same
    clock.live()        # from now on changes() is sent
    clock.still()       # no more; what the notebook stores is the last picture
    clock.say({...})    # send something at once, from any thread

`changes`, `whole` and `received` are called on the sampler's thread, one after the other: they
share what they need without locks among themselves, must be quick and must not wait for arrays.

And in JavaScript, `js/clock.js` (`js/shared.js` stands before it; its functions are at hand):

    export default () => {
      const clock = { s: 0 };               // what all views of this widget show
      const views = new Set();
      return {
        initialize({ model }) {
          // take(header, buffers): header.whole says that it is everything, not news
          listen(model, (header, buffers) => { clock.s = header.s; views.forEach((v) => v()); });
        },
        render({ model, el }) {
          el.classList.add("d2l-widget");   // the shared styles and colours, js/style.css
          const draw = () => { el.textContent = clock.s; };
          views.add(draw);
          draw();
          return () => views.delete(draw);
        },
      };
    };

A view may come late (the first takes a second to load, a page is loaded again), and what it says
may arrive only after the cell (ipykernel 7.4). So until one has reported, everything is sent once a
second, the news in between; a view that missed something takes nothing until it has everything.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
import threading
import weakref
from base64 import b64encode
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from d2lmini.widgets import sampler

if TYPE_CHECKING:
    from d2lmini.draw.picture import Picture

#: What is sent: a dict that JSON can say, and bytes or arrays beside it.
Message = tuple[dict[str, Any], Sequence[Any]]

#: So many widgets are kept for their views; of older ones the picture remains.
KEPT = 16

#: Beats between two wholes until a view has reported.
WHOLE_EVERY = 10

_JS = Path(__file__).parent / "js"

_shown: deque[Widget] = deque()


class Widget:
    """A live view of something; see above. Nothing of it needs a notebook but `show`."""

    #: The ES module in widgets/js, without its ending; what stands beside the picture as text.
    script: ClassVar[str]
    words: str

    def __init__(self) -> None:
        self._front: Any = None  # the ipywidgets widget, once shown
        self._views: list[Any] = []  # handles of its outputs in the notebook
        self._pictures: list[Any] = []
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
        """Everything a view needs; before it has had that it takes no changes."""
        return None

    def received(self, message: dict[str, Any]) -> None:
        """A view has sent this."""

    def picture(self) -> Picture | None:
        """What remains when nothing is live; None: there is nothing to see yet."""
        return None

    # -- what it is used by ------------------------------------------------------------------------

    @property
    def front(self) -> Any:
        """The anywidget that stands for it in a notebook, made when first asked for: can be put
        into ipywidgets' boxes. ImportError if the `lab` extra is not installed, ValueError after
        `close`."""
        if self._front is None:
            if self._closed:
                raise ValueError(f"{self.words}: it is closed; make a new one")
            self._front = _front_class(self.script)()
            # ipywidgets keeps every front; it must not keep what stands behind.
            self._front.on_msg(functools.partial(_heard, weakref.ref(self)))
        return self._front

    def show(self) -> None:
        """Display it below the running cell of a notebook; elsewhere do nothing.

        The view and the picture are two outputs, one right after the other: where the view cannot
        be (no kernel, a code host) the picture is seen all the same. While the view is there,
        style.css hides the picture."""
        if not in_notebook():
            return
        display = importlib.import_module("IPython.display").display
        self._shown_in = _execution()
        self._views.append(display(self._view(), raw=True, display_id=True))
        data, metadata = self._still()
        self._pictures.append(display(data, metadata=metadata, raw=True, display_id=True))
        _keep(self)

    def live(self) -> None:
        """Send what changes from now on."""
        sampler.add(self)

    def still(self) -> None:
        """Send no more changes; the notebook's output becomes the present picture."""
        sampler.remove(self)
        sampler.call(functools.partial(_send_whole, weakref.ref(self)))
        self.update_picture()

    def close(self) -> None:
        """Let go of the view: where it was, the picture remains. Closing twice does no harm."""
        sampler.remove(self)
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
        """Let what the notebook stores be the present picture."""
        if self._pictures:
            data, metadata = self._still()
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
        """Send everything, on the sampler's thread."""
        message = self.whole()
        if message is not None:
            self.say(*message, whole=True)

    def beat(self) -> None:
        """The sampler's: send the news, or everything, if nobody has told yet that he listens."""
        news = self.changes()
        if not self._heard and self._beats % WHOLE_EVERY == 0 and self._front is not None:
            self.say_whole()
        elif news is not None:
            self.say(*news)
        self._beats += 1

    # -- what a notebook asks ----------------------------------------------------------------------

    def _view(self) -> dict[str, Any]:
        """What a notebook shows as long as there is a kernel, by MIME type."""
        data: dict[str, Any] = {"text/plain": repr(self)}
        if not self._closed:
            view = {"version_major": 2, "version_minor": 0, "model_id": self.front.model_id}
            data["application/vnd.jupyter.widget-view+json"] = view
        return data

    def _still(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What remains: (data, metadata). The text is the same whether there is a picture yet."""
        data: dict[str, Any] = {"text/plain": ""}
        picture = self.picture()
        if picture is None:
            return data, {}
        image, size = picture._repr_png_()
        return {**data, "image/png": b64encode(image).decode("ascii")}, {"image/png": size}

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        data, metadata = self._still()
        return {**data, "text/plain": repr(self)}, metadata

    def _ipython_display_(self) -> None:
        if not in_notebook():
            print(repr(self))
        elif (
            self._shown_in is None or self._shown_in != _execution()
        ):  # else this cell shows it already
            self.show()

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
    """Does this run in a Jupyter kernel? (Terminal IPython and scripts have no front end.)"""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _execution() -> str | None:
    """Which run of which cell this is: the number of the request. (Counts of cells stand still
    where nothing is to be remembered, as when nbval runs them.)"""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    kernel: Any = getattr(shell, "kernel", None)
    request = kernel.get_parent() if hasattr(kernel, "get_parent") else {}
    number: str | None = request.get("header", {}).get("msg_id")
    return number


@functools.cache
def _front_class(script: str) -> Any:
    """The anywidget class of an ES module; the shared functions stand before the module's own, and
    the shared styles before those of `js/SCRIPT.css`, if there are some."""
    anywidget = need("anywidget")
    text = "\n".join(
        (_JS / f"{name}.js").read_text(encoding="utf-8") for name in ("shared", script)
    )
    style = "\n".join(
        _expand_dark(path.read_text(encoding="utf-8"))
        for path in (_JS / "style.css", _JS / f"{script}.css")
        if path.exists()
    )
    return type(f"d2lmini_{script}", (anywidget.AnyWidget,), {"_esm": text, "_css": style})


def _expand_dark(style: str) -> str:
    """Each `@dark SELECTOR {...}` as a rule for JupyterLab's and VS Code's dark themes, and as one
    for a page that follows the system."""
    return re.sub(
        r"@dark (\S+) (\{[^}]*\})",
        r'[data-jp-theme-light="false"] \1, body.vscode-dark \1, body.vscode-high-contrast \1 \2'
        "\n@media (prefers-color-scheme: dark) {\n"
        r"  body:not([data-jp-theme-light]):not(.vscode-light) \1 \2"
        "\n}",
        style,
    )


def _keep(widget: Widget) -> None:
    """Keep what stands behind a view, to fill it again when the page is loaded again; of the
    oldest the picture will do."""
    if widget not in _shown:
        _shown.append(widget)
    while len(_shown) > KEPT:
        _shown.popleft().close()


def _heard(ref: weakref.ref[Widget], _: Any, message: Any, buffers: Any) -> None:
    """A message came, on whatever thread: let the sampler's thread see to it."""
    sampler.call(functools.partial(_answer, ref, message))


def _answer(ref: weakref.ref[Widget], message: dict[str, Any]) -> None:
    widget = ref()
    if widget is None:
        return
    if message.get("kind") == "ready":
        widget._heard = True
        widget.say_whole()
    else:
        widget.received(message)


def _send_whole(ref: weakref.ref[Widget]) -> None:
    widget = ref()
    if widget is not None and widget._front is not None:
        widget.say_whole()
