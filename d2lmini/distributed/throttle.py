"""A throttled link: messages between processes take as long as on a slower network.

The processes of one machine exchange arrays through its memory, faster than any network. To see
the effect of a network on a step, throttle their link by the environment of the job:

    D2LMINI_LINK_GB_S=0.125 D2LMINI_LINK_LATENCY_S=1e-4 d2lmini launch -n 2 train.py

>>> link = Link(gb_s=0.125, latency_s=1e-4)            # about 1 Gbit/s
>>> print(link, f"{link.seconds(1 << 20) * 1e3:.3g} ms for a bucket")
<link 0.125 GB/s, latency 100 us> 8.49 ms for a bucket

Each process has one such link to all others. A message takes the latency plus the time of its bytes
at this rate; the process sleeps meanwhile, so no core is busy and other threads can compute.
Messages that start together share one latency, and the rate. Only bytes that this process sends
count: in a sum over n processes of N bytes (n - 1) / n * N, twice, once for the shares to be added
up, once for the sums. Before each sum all processes check that they agree, with 16 bytes that are
passed on log2 n times.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from d2lmini import environment


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


def read_link() -> Link:
    """The link that the environment asks for."""
    return Link(environment.read("D2LMINI_LINK_GB_S"), environment.read("D2LMINI_LINK_LATENCY_S"))
