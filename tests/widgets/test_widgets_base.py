"""What all widgets share: the refresher's thread, messages, outputs of a notebook; no browser."""

import gc
import threading
import weakref

import pytest
from fronts import Front
from worlds import until

from d2lmini.draw.timeline import timeline
from d2lmini.widgets import base, refresher

anywidget = pytest.importorskip("anywidget")


@pytest.fixture(autouse=True)
def quiet():
    """A test begins and ends without the thread."""
    until(lambda: not refresher.running())
    yield
    gc.collect()
    until(lambda: not refresher.running())


class Count(base.Widget):
    """Counts beats; its whole is the count."""

    script = "watch"
    words = "count"

    def __init__(self):
        super().__init__()
        self.beaten = 0
        self.got = []

    def changes(self):
        self.beaten += 1
        return {"beaten": self.beaten}, []

    def whole(self):
        return {"beaten": self.beaten}, [b"all"]

    def received(self, message):
        self.got.append((message, threading.current_thread().name))

    def picture(self):
        return timeline([("row", [("compute", 0.0, 1.0)])]) if self.beaten else None


@pytest.fixture
def notebook(monkeypatch):
    """As in a notebook: what is displayed and updated, without a kernel."""
    import IPython.display

    outputs = []

    class Handle:
        def __init__(self, data, metadata):
            self.versions = [(data, metadata)]

        def update(self, data, metadata=None, raw=False):
            assert raw
            self.versions.append((data, metadata))

    def display(data, metadata=None, raw=False, display_id=None):
        assert raw and display_id
        outputs.append(Handle(data, metadata))
        return outputs[-1]

    monkeypatch.setattr(IPython.display, "display", display)
    monkeypatch.setattr(base, "in_notebook", lambda: True)
    monkeypatch.setattr(base, "_execution", lambda: 7)
    monkeypatch.setattr(base, "_front_class", lambda script: Front)
    base._shown.clear()
    yield outputs
    base._shown.clear()


# --- the refresher ---


def test_one_thread_beats_for_all_and_ends_with_the_last():
    first, second = Count(), Count()
    first.live()
    second.live()
    until(lambda: first.beaten > 2 and second.beaten > 2)
    assert [t.name for t in threading.enumerate()].count(refresher.NAME) == 1
    first.still()
    known = first.beaten
    until(lambda: second.beaten > 6)
    assert first.beaten <= known + 1, "a beat may have been on its way"
    second.still()
    until(lambda: not refresher.running())


def test_a_widget_that_raises_is_dropped_and_the_next_call_warns():
    class Broken(Count):
        def changes(self):
            raise ValueError("no")

    broken, other = Broken(), Count()
    broken.live()
    until(lambda: not refresher.running())
    with pytest.warns(UserWarning, match=r"Broken raised ValueError\('no'\)"):
        other.live()
    until(lambda: other.beaten)
    other.still()


# --- messages ---


def test_everything_is_sent_until_a_view_has_reported_then_the_news():
    widget = Count()
    widget._front = front = Front()
    for _ in range(12):
        widget.beat()
    whole = [header["whole"] for header, _ in front.sent]
    assert whole == [n % base.WHOLE_EVERY == 0 for n in range(12)]
    assert [header["n"] for header, _ in front.sent] == list(range(1, 13)), "each has its number"
    base._on_message(weakref.ref(widget), None, {"kind": "ready"}, [])
    until(lambda: len(front.sent) == 13)
    header, buffers = front.sent[-1]
    assert header["whole"] and buffers == [b"all"]
    for _ in range(2 * base.WHOLE_EVERY):
        widget.beat()
    assert not any(header["whole"] for header, _ in front.sent[13:])


# --- outputs of a notebook ---


def test_view_and_picture_are_two_outputs_and_the_last_picture_is_kept(notebook):
    widget = Count()
    widget.show()
    view, picture = notebook
    assert view.versions[0][0]["text/plain"] == "<count>"
    known = view.versions[0][0]["application/vnd.jupyter.widget-view+json"]
    assert known["model_id"] == "model-1"
    assert picture.versions == [({"text/plain": ""}, {})], "nothing is to be seen yet"
    widget.beat()
    widget.still()
    data, metadata = picture.versions[-1]
    assert data["text/plain"] == "" and len(data["image/png"]) > 1000
    assert set(metadata["image/png"]) == {"width", "height"}
    assert len(view.versions) == 1, "the view is not made anew"


def test_once_a_view_has_reported_the_picture_is_stored_as_html_too(notebook):
    class Noted(Count):
        words = "a < b"

        def below(self):
            return "<p>1 &lt; 2</p>"

    widget = Noted()
    widget.show()
    widget.beat()
    widget.update_picture()
    _, picture = notebook
    plain, metadata = picture.versions[-1]
    assert "text/html" not in plain
    for _ in range(2):
        widget.answer({"kind": "ready"})
    assert len(picture.versions) == 3, "once, not at each view"
    data, again = picture.versions[-1]
    html = data.pop("text/html")
    assert (data, again) == (plain, metadata)
    assert plain["image/png"] in html and 'alt="a &lt; b" width="660"' in html
    assert html.endswith("<p>1 &lt; 2</p></div>")


def test_closed_it_leaves_the_picture_and_closing_twice_does_no_harm(notebook):
    widget = Count()
    widget.show()
    widget.beat()
    front = widget._front
    widget.close()
    widget.close()
    view, picture = notebook
    assert front.closed and view.versions[-1][0] == {"text/plain": "<count>"}
    assert "image/png" in picture.versions[-1][0]


def test_the_front_is_an_anywidget_with_the_shared_functions_and_styles():
    front = base._front_class("watch")
    assert issubclass(front, anywidget.AnyWidget)
    made = front()
    assert "function listen(" in made._esm and "export default" in made._esm
    for rule in ("--d2l-compute", ".d2l-watch-words", ".d2l-stored"):
        assert rule in made._css
    made.close()
