"""Samples of a thread's Python stack: where the time of the issuing program itself goes.

    with d2lmini.profile(sample_hz=1000) as trace:
        train(net)
    print(trace.python())              # a table by line
    trace.python().flame()             # a picture: the width of a box is time

A thread looks at the stack of the thread that profiles, a thousand times a second. Each sample
stands for the time since the sample before it; samples inside the program's waits are left out. The
sampler needs Python's global lock for each sample, so it shortens the interpreter's switch interval
to half of its own while it runs, and slows Python code down by a few per cent. A call of C code
that keeps the lock delays the sample until the call returns, at its line.

>>> from d2lmini import profile
>>> with profile(sample_hz=1000) as trace:
...     total = sum(i * i for i in range(300_000))
>>> trace.python().lines[0].seconds > 0
True
"""

from __future__ import annotations

import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from d2lmini import callsite
from d2lmini.callsite import Site
from d2lmini.draw import svg
from d2lmini.draw.picture import Drawing
from d2lmini.draw.timeline import STYLES

if TYPE_CHECKING:
    from d2lmini.profiler.records import Wait

#: A sampled stack: (code, instruction) of each frame, the outermost first.
Stack = tuple[Site, ...]

#: Deeper stacks lose their outer frames.
_DEEPEST = 100

#: Pixels of a flame graph: its width, the height of a row, and of a letter.
_WIDTH, _ROW, _LETTER = 660.0, 18.0, 5.4


class Sample(NamedTuple):
    """A stack, and the time that it stands for."""

    begin_ns: int
    end_ns: int
    stack: Stack


class Sampler:
    """Samples the stack of the thread that makes this object, until `stop`."""

    def __init__(self, hz: float):
        if not 1 <= hz <= 10_000:
            raise ValueError(f"profile: sample_hz is from 1 to 10000 per second, got {hz}")
        self.samples: list[Sample] = []
        self._sampled = threading.get_ident()
        self._interval_s = 1 / hz
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._switch_s = sys.getswitchinterval()
        sys.setswitchinterval(min(self._switch_s, self._interval_s / 2))
        self._thread.start()

    def stop(self) -> None:
        """End; no sample is added any more."""
        self._over.set()
        self._thread.join()
        sys.setswitchinterval(self._switch_s)

    def _run(self) -> None:
        last_ns = time.perf_counter_ns()
        while not self._over.wait(self._interval_s):
            frame = sys._current_frames().get(self._sampled)
            if frame is None:
                return  # the thread has ended
            now_ns = time.perf_counter_ns()
            self.samples.append(Sample(last_ns, now_ns, _stack_of(frame)))
            last_ns = now_ns


def _stack_of(frame: FrameType | None) -> Stack:
    found: list[Site] = []
    while frame is not None and len(found) < _DEEPEST:
        found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(reversed(found))


class PythonLine(NamedTuple):
    """The time of a line of the program, with all that it called, and without its own calls to
    other lines of the program."""

    where: str
    seconds: float
    own_seconds: float


class PythonTime:
    """Where the issuing thread's Python time went.

    samples  those outside the program's waits
    seconds  of all samples together
    lines    `PythonLine`s, the longest own time first
    """

    def __init__(self, samples: Iterable[Sample], waits: Sequence[Wait]):
        ends = [wait.end_ns for wait in waits]  # in order, as the waits of a thread are
        self.samples = []
        for sample in samples:
            k = bisect_left(ends, sample.end_ns)
            if k == len(ends) or waits[k].begin_ns > sample.end_ns:
                self.samples.append(sample)
        self.seconds = sum(sample.end_ns - sample.begin_ns for sample in self.samples) / 1e9
        total: dict[Any, list[float]] = {}
        sites: dict[Any, Site] = {}
        for sample in self.samples:
            seconds = (sample.end_ns - sample.begin_ns) / 1e9
            lines = {}
            for site in _users(sample.stack):
                key = site[0], callsite.line_of(site)
                lines[key] = sites[key] = site
            for key in lines:
                total.setdefault(key, [0.0, 0.0])[0] += seconds
            if (own := innermost(sample.stack)) is not None:
                total[own[0], callsite.line_of(own)][1] += seconds
        self.lines = [
            PythonLine(callsite.describe(sites[key]), *times)
            for key, times in sorted(total.items(), key=lambda item: (-item[1][1], -item[1][0]))
        ]

    def __str__(self) -> str:
        rows = [f"{'own time':>12}{'with calls':>13}  line"]
        for line in self.lines[:20]:
            own_ms, all_ms = 1e3 * line.own_seconds, 1e3 * line.seconds
            rows.append(f"{own_ms:>9.1f} ms{all_ms:>10.1f} ms  {line.where}")
        rows.append(f"{1e3 * self.seconds:>9.1f} ms{'':13}  in all, {len(self.samples)} samples")
        return "\n".join(rows)

    def __repr__(self) -> str:
        return f"<Python time of {1e3 * self.seconds:.1f} ms, {len(self.samples)} samples>"

    def flame(self) -> Drawing:
        """The flame graph: a box for each line, above the line that called it; its width is its
        share of the time. Calls of the library appear by the function's name. ValueError if there
        are no samples."""
        if not self.samples:
            raise ValueError("flame: no samples; profile with sample_hz=1000, and for longer")
        root = _Node("the program")
        for sample in self.samples:
            root.add(words_of(sample.stack), sample.end_ns - sample.begin_ns)
        parts: list[str] = []
        height = root.depth() * _ROW
        root.draw(parts, svg.MARGIN, svg.MARGIN + height - _ROW, _WIDTH / root.ns, root.ns)
        page = svg.page(_WIDTH + 2 * svg.MARGIN, height + 2 * svg.MARGIN, parts)
        return Drawing(page, "flame graph of the issuing thread's Python time")


def _users(stack: Stack) -> list[Site]:
    """The frames of the program, the outermost first."""
    return [site for site in stack if callsite.is_users(site[0])]


def innermost(stack: Stack) -> Site | None:
    """The line of the program that runs, perhaps in a function that it called."""
    found = _users(stack)
    return found[-1] if found else None


def words_of(stack: Stack) -> list[str]:
    """Names of the boxes of a stack: lines of the program, then the library's function."""
    found = _users(stack)
    words = [callsite.without_folder(callsite.describe(site)) for site in found]
    if found:
        inside = stack[stack.index(found[-1]) + 1 :]
        words += [callsite.name_of(code).rpartition("<locals>.")[2] for code, _ in inside[:1]]
    return words


class _Node:
    """A box of a flame graph: `ns` of its samples, and the boxes above it."""

    def __init__(self, word: str):
        self.word = word
        self.ns = 0
        self.above: dict[str, _Node] = {}

    def add(self, words: Sequence[str], ns: int) -> None:
        self.ns += ns
        if words:
            self.above.setdefault(words[0], _Node(words[0])).add(words[1:], ns)

    def depth(self) -> int:
        return 1 + max((node.depth() for node in self.above.values()), default=0)

    def draw(self, parts: list[str], x: float, y: float, per_ns: float, all_ns: int) -> None:
        width = self.ns * per_ns
        if width < 1:
            return
        title = f"{self.word}: {self.ns / 1e6:.1f} ms, {100 * self.ns / all_ns:.0f} %"
        box = svg.draw_frame(x + width / 2, y, width, _ROW - 1, *STYLES["compute"][:2], 1, 0.6)
        if width > 4 * _LETTER:
            word = svg.shorten(self.word, int(width / _LETTER) - 1)
            box += svg.draw_text(x + 3, y + 12, word, 9, svg.FILLED)
        parts.append(svg.with_title(title, box))
        for node in sorted(self.above.values(), key=lambda node: node.word):
            node.draw(parts, x, y - _ROW, per_ns, all_ns)
            x += node.ns * per_ns
