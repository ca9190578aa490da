"""A slow link on a fast machine: what travels between processes takes as long as it would there.

The processes of one machine exchange arrays through its memory, faster than any network. To see
what a network does to a step, let them have a thin one:

>>> from d2lmini import kvstore
>>> with kvstore.thin_link(gb_s=0.125, latency_s=1e-4) as link:     # about 1 Gbit/s
...     print(link, f"{link.seconds(1 << 20) * 1e3:.3g} ms for a bucket")
<link 0.125 GB/s, latency 100 us> 8.49 ms for a bucket

or for a whole job from outside: D2LMINI_LINK_GB_S=0.125 D2LMINI_LINK_LATENCY_S=1e-4.

Each process has one such link to all others. A message sets out, takes the latency to come through
and the time that its bytes take at this rate; the process sleeps meanwhile, so no core is busy,
and who computes can go on. Those that set out together share one latency, and the rate. What is
counted are the bytes which this process sends: in a sum over n processes of N bytes
(n - 1) / n * N, twice, once for the shares to be added up, once for the sums. Before that all agree
that they are at the same sum, with 16 bytes that go log2 n times from one to another.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from d2lmini import engine
from d2lmini.base import MXNetError


class Link(NamedTuple):
    """What holds messages back: a rate in GB/s (None: nothing does) and seconds for each."""

    gb_s: float | None = None
    latency_s: float = 0.0

    def seconds(self, nbytes: float, messages: int = 1) -> float:
        """How long `messages` that follow one another take, with so many bytes in each."""
        moving_s = 0.0 if self.gb_s is None else nbytes / (self.gb_s * 1e9)
        return messages * (self.latency_s + moving_s)

    def hold(self, since: float, nbytes: float, messages: int = 1) -> None:
        """Sleep until what set out at `since` (of `time.monotonic()`) has come through."""
        until = since + self.seconds(nbytes, messages)
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(left_s)

    def __repr__(self) -> str:
        rate = "full speed" if self.gb_s is None else f"{self.gb_s:g} GB/s"
        return f"<link {rate}, latency {self.latency_s * 1e6:g} us>"


class thin_link:
    """Let what this process sends to others of its job be held back.

    gb_s       GB/s that it sends; None: as fast as the machine does
    latency_s  seconds that each message takes beside

    As a call it stays until another one, `thin_link()` for none; as a scope, `as` gives the `Link`,
    until its end, when what was there before is back. All processes of a job do the same, at the
    same place: it waits for everything pending, as the end of the scope does. MXNetError for a rate
    or a latency that makes no sense.
    """

    def __init__(self, gb_s: float | None = None, latency_s: float = 0.0):
        self._before = current()
        self.link = _checked("thin_link: ", gb_s, latency_s)
        _install(self.link)

    def __enter__(self) -> Link:
        return self.link

    def __exit__(self, *exc: object) -> None:
        _install(self._before)


_current: Link | None = None


def current() -> Link:
    """The link that there is now; to begin with that of the environment."""
    global _current
    if _current is None:
        _current = _checked(
            "D2LMINI_LINK_GB_S and D2LMINI_LINK_LATENCY_S: ",
            os.environ.get("D2LMINI_LINK_GB_S") or None,
            os.environ.get("D2LMINI_LINK_LATENCY_S") or 0.0,
        )
    return _current


def _install(link: Link) -> None:
    global _current
    engine.current.wait_idle("thin_link")
    _current = link


def _checked(who: str, gb_s: float | str | None, latency_s: float | str) -> Link:
    try:
        link = Link(None if gb_s is None else float(gb_s), float(latency_s))
    except (TypeError, ValueError):
        raise MXNetError(f"{who}expected numbers, got {gb_s!r} and {latency_s!r}") from None
    if link.gb_s is not None and not link.gb_s > 0:
        raise MXNetError(f"{who}the rate is in GB/s, above 0, got {gb_s!r}")
    if not 0 <= link.latency_s < float("inf"):
        raise MXNetError(f"{who}the latency is in seconds, 0 or more, got {latency_s!r}")
    return link
