"""A throttled link: messages between processes take as long as on a slower network.

The processes of one machine exchange arrays through its memory, faster than any network. To see
the effect of a network on a step, throttle their link:

>>> from d2lmini import kvstore
>>> with kvstore.thin_link(gb_s=0.125, latency_s=1e-4) as link:     # about 1 Gbit/s
...     print(link, f"{link.seconds(1 << 20) * 1e3:.3g} ms for a bucket")
<link 0.125 GB/s, latency 100 us> 8.49 ms for a bucket

For a whole job, from outside: D2LMINI_LINK_GB_S=0.125 D2LMINI_LINK_LATENCY_S=1e-4.

Each process has one such link to all others. A message takes the latency plus the time of its bytes
at this rate; the process sleeps meanwhile, so no core is busy and other threads can compute.
Messages that start together share one latency, and the rate. Only bytes that this process sends
count: in a sum over n processes of N bytes (n - 1) / n * N, twice, once for the shares to be added
up, once for the sums. Before each sum all processes check that they agree, with 16 bytes that are
passed on log2 n times.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import NamedTuple

from d2lmini import engine
from d2lmini.base import MXNetError, environment
from d2lmini.base.scopes import Standing, swap


class Link(NamedTuple):
    """The throttle: a rate in GB/s (None: unlimited) and seconds of latency per message."""

    gb_s: float | None = None
    latency_s: float = 0.0

    def seconds(self, nbytes: float, messages: int = 1) -> float:
        """Duration of `messages` in sequence, with `nbytes` in each."""
        moving_s = 0.0 if self.gb_s is None else nbytes / (self.gb_s * 1e9)
        return messages * (self.latency_s + moving_s)

    def hold(self, since: float, nbytes: float, messages: int = 1) -> None:
        """Sleep until a message that started at `since` (of `time.monotonic()`) has arrived."""
        until = since + self.seconds(nbytes, messages)
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(left_s)

    def __repr__(self) -> str:
        rate = "full speed" if self.gb_s is None else f"{self.gb_s:g} GB/s"
        return f"<link {rate}, latency {self.latency_s * 1e6:g} us>"


class thin_link(Standing):
    """Throttle the messages that this process sends to others of its job.

    gb_s       GB/s that it sends; None: unlimited
    latency_s  additional seconds for each message

    Called, it holds until the next call, `thin_link()` for no throttle; as a scope, `as` gives the
    `Link`, until its end, which restores the former link. All processes of a job must do the same,
    at the same place: it waits for everything pending, as the end of the scope does. MXNetError for
    an invalid rate or latency.
    """

    def __init__(self, gb_s: float | None = None, latency_s: float = 0.0):
        super().__init__()
        self.link = _checked(gb_s, latency_s)
        self.close()
        swap(self.undo, sys.modules[__name__], "_current", current())
        self.install(partial(setattr, sys.modules[__name__], "_current", self.link))

    def __enter__(self) -> Link:
        return self.link

    def close(self) -> None:
        engine.current.wait_idle("thin_link")


_current: Link | None = None


def current() -> Link:
    """The present link; at first that of the environment."""
    global _current
    if _current is None:
        rate, latency = "D2LMINI_LINK_GB_S", "D2LMINI_LINK_LATENCY_S"
        _current = Link(environment.read(rate), environment.read(latency))
    return _current


def _checked(gb_s: float | None, latency_s: float) -> Link:
    try:
        link = Link(None if gb_s is None else float(gb_s), float(latency_s))
    except (TypeError, ValueError):
        raise MXNetError(f"thin_link: expected numbers, got {gb_s!r} and {latency_s!r}") from None
    if link.gb_s is not None and not link.gb_s > 0:
        raise MXNetError(f"thin_link: the rate is in GB/s, above 0, got {gb_s!r}")
    if not 0 <= link.latency_s < float("inf"):
        raise MXNetError(f"thin_link: the latency is in seconds, 0 or more, got {latency_s!r}")
    return link
