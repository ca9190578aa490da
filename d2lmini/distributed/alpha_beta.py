"""The cost of an allreduce over n processes: the alpha-beta model, and counts of messages.

    link = Link(alpha_s=30e-6, beta_s=1 / 1.2e9)     # 30 us a message, 1.2 GB/s
    all_reduce_s(100e6, 64, link, "ring")            # seconds
    fitted = fit(sizes, times, n=2)                  # alpha and beta from measured sums

Two numbers describe a link (Hockney, 1994): a message of S bytes takes alpha + beta S, alpha
whatever its size, beta for each byte. Messages that start together share one alpha; where there
are very many, the time that each keeps its sender busy counts as well (the overhead of LogGP:
Alexandrov, Ionescu, Schauser and Scheiman, 1995). The cost of a sum follows by counting, and `WAYS`
has the counts of each algorithm. If beta was measured, it includes the additions. The model ignores
that pairs of processes may share a link, except within one machine.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from d2lmini.d2l.explain import duration

#: A fit is repeated this often with times drawn from the measured ones; bands hold 90 of 100.
DRAWS = 100
BAND = (0.05, 0.95)


class Link(NamedTuple):
    """The cost of a message: `alpha_s` seconds, and `beta_s` seconds for each of its bytes; the
    message keeps its sender busy for `send_s`, and the next one cannot start before.

    >>> print(Link(alpha_s=30e-6, beta_s=1 / 1.2e9))
    30 us a message, 1.2 GB/s
    """

    alpha_s: float
    beta_s: float
    send_s: float = 0.0

    def message_s(self, nbytes: float) -> float:
        """Seconds for one message of `nbytes`."""
        return self.alpha_s + self.beta_s * nbytes

    @property
    def gb_per_s(self) -> float:
        """The rate for large messages."""
        return 1e-9 / self.beta_s if self.beta_s else math.inf

    def __str__(self) -> str:
        return f"{duration(self.alpha_s)} a message, {self.gb_per_s:.3g} GB/s"


# -- a sum over all processes ----------------------------------------------------------------------


class Rounds(NamedTuple):
    """The counts of one exchange: `rounds` of messages, one after the other; `passes` of the
    array's bytes over a link, in or out; and `sends`, messages that keep a process busy."""

    rounds: float
    passes: float
    sends: float

    def seconds(self, nbytes: float, link: Link) -> float:
        """Seconds of the exchange for an array of `nbytes`."""
        return (
            self.rounds * link.alpha_s
            + self.passes * nbytes * link.beta_s
            + self.sends * link.send_s
        )


def _ring(n: int) -> Rounds:
    """Every process sends a share to its neighbour, n - 1 times while sums accumulate, n - 1 times
    while they are passed on: the minimum of bytes (Patarasuk and Yuan, JPDC 69, 2009)."""
    return Rounds(2 * (n - 1), 2 * (n - 1) / n, 2 * (n - 1))


def _halving(n: int) -> Rounds:
    """Half of the array is exchanged with a partner, then half of that half with the next, ...; and
    all of it back (Rabenseifner; Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005). The processes
    beyond a power of two send their arrays to a partner before, and get the sum after."""
    height = int(math.log2(n))
    odd = 2 * (n > 2**height)
    return Rounds(2 * height + odd, 2 * (1 - 0.5**height) + odd, 2 * height + odd)


def _tree(n: int) -> Rounds:
    """The whole array goes up a binary tree, and down again."""
    height = math.ceil(math.log2(n))
    return Rounds(2 * height, 2 * height, 2 * height)


def _server(n: int) -> Rounds:
    """One process receives the arrays of all others and sends each the sum: the traffic on the
    link of that process (a single server of Li et al., OSDI 2014, when all send at once)."""
    return Rounds(2, 2 * (n - 1), 2 * (n - 1))


def _shares(n: int) -> Rounds:
    """The algorithm of `mpi`. First all processes check that they agree, a few bytes in log2 n
    rounds; then each sends every other one its share, adds up its own share in the order of the
    ranks, and sends it to all: two rounds, the bytes of the ring, n - 1 messages in each."""
    height = math.ceil(math.log2(n))
    return Rounds(2 + height, 2 * (n - 1) / n, 2 * (n - 1) + height)


#: Algorithms for a sum: the counts for each process, for n > 1.
WAYS: dict[str, Callable[[int], Rounds]] = {
    "ring": _ring, "halving": _halving, "tree": _tree, "server": _server, "shares": _shares,
}  # fmt: skip


def rounds_of(way: str, n: int) -> Rounds:
    """The counts of a sum over n processes, for each; zeros for n = 1. ValueError if `way` is not
    in `WAYS`.

    >>> for way in ("ring", "halving", "tree", "server", "shares"):
    ...     print(way, rounds_of(way, 4))
    ring Rounds(rounds=6, passes=1.5, sends=6)
    halving Rounds(rounds=4, passes=1.5, sends=4)
    tree Rounds(rounds=4, passes=4, sends=4)
    server Rounds(rounds=2, passes=6, sends=6)
    shares Rounds(rounds=4, passes=1.5, sends=8)
    """
    if way not in WAYS:
        raise ValueError(f"{way!r} is unknown; there are {', '.join(WAYS)}")
    if n != int(n) or n < 1:
        raise ValueError(f"a sum is over 1 process or more, got n = {n!r}")
    return WAYS[way](int(n)) if n > 1 else Rounds(0, 0.0, 0)


def all_reduce_s(
    nbytes: float, n: int, link: Link, way: str = "shares", per_node: int = 1,
    inside: Link | None = None,
) -> float:  # fmt: skip
    """Seconds until all of n processes have the sum of their arrays of `nbytes`.

    per_node: number of processes in one machine, with a link `inside` it that is better than the
    link between machines (hierarchical: each process sums a share within the machine, by a ring;
    shares are summed over machines, all at once through the machine's one `link`; then they are
    gathered within). ValueError if n is no multiple of per_node, or there is no `inside`.

    >>> link = Link(alpha_s=1e-3, beta_s=1e-8)                   # 1 ms, 0.1 GB/s
    >>> [f"{all_reduce_s(1e6, n, link, 'ring'):.4f}" for n in (1, 2, 4, 1024)]
    ['0.0000', '0.0120', '0.0210', '2.0660']
    >>> f"{all_reduce_s(1e6, 1024, link, 'halving'):.4f}"
    '0.0400'
    >>> shared_memory = Link(alpha_s=1e-5, beta_s=1e-10)
    >>> f"{all_reduce_s(1e6, 1024, link, 'ring', per_node=8, inside=shared_memory):.4f}"
    '0.2742'
    """
    here = min(per_node, n)
    rounds = rounds_of(way, n if here < 2 else -(-n // here))
    if here < 2:
        return rounds.seconds(nbytes, link)
    if inside is None or n % here:
        raise ValueError(
            f"per_node={per_node} needs the link inside of a machine, and machines that are full; "
            f"got inside={inside} and n={n}"
        )
    return rounds_of("ring", here).seconds(nbytes, inside) + rounds.seconds(nbytes, link)


# -- alpha and beta, measured ----------------------------------------------------------------------


class Fit(NamedTuple):
    """A measured link: the best `link`, and the links that other draws of the measured times give
    (bootstrap)."""

    link: Link
    draws: tuple[Link, ...]

    @property
    def alpha_s(self) -> float:
        """Seconds per message."""
        return self.link.alpha_s

    @property
    def beta_s(self) -> float:
        """Seconds per byte."""
        return self.link.beta_s

    @property
    def alpha_band_s(self) -> tuple[float, float]:
        """The range of alpha in 90 of 100 draws."""
        return band([link.alpha_s for link in self.draws])

    @property
    def beta_band_s(self) -> tuple[float, float]:
        """The range of beta in 90 of 100 draws."""
        return band([link.beta_s for link in self.draws])

    def __str__(self) -> str:
        a, b = self.alpha_band_s, self.beta_band_s
        slow, fast = (Link(0, slope).gb_per_s for slope in reversed(b))
        return (
            f"{self.link} (in 90 of 100 draws {duration(a[0])} to {duration(a[1])}, "
            f"{slow:.3g} GB/s to {fast:.3g} GB/s)"
        )


def fit(
    sizes: Iterable[float], times: Iterable[float], n: int = 2, way: str = "shares",
    send_s: float = 0.0, seed: int = 0,
) -> Fit:  # fmt: skip
    """Alpha and beta from sums over n processes: `times[i]` seconds for an array of `sizes[i]`
    bytes, several times each of several sizes. The medians are fitted by least squares of the
    relative error, so that small messages count as much as large ones; neither is below 0. send_s
    is not fitted: it must be known. ValueError with fewer than two sizes.

    >>> sizes = [1e3, 1e5, 1e7] * 3
    >>> found = fit(sizes, [all_reduce_s(s, 2, Link(1e-4, 1e-9)) for s in sizes])
    >>> print(found.link)
    100 us a message, 1 GB/s
    """
    rounds = rounds_of(way, n)
    groups: dict[float, list[float]] = {}
    for size, seconds in zip(sizes, times):
        groups.setdefault(float(size), []).append(float(seconds) - rounds.sends * send_s)
    if len(groups) < 2 or n < 2:
        raise ValueError(
            "fit: a line needs sums of two sizes or more, over two processes or more; got "
            f"{len(groups)} sizes and n = {n}"
        )
    if min(min(group) for group in groups.values()) <= 0:
        raise ValueError(f"fit: some sums take no time, or less than sending: {send_s} s a message")
    chance = random.Random(seed)
    draws = [{size: statistics.median(values) for size, values in groups.items()}]
    for _ in range(DRAWS):
        drawn = {size: chance.choices(values, k=len(values)) for size, values in groups.items()}
        draws.append({size: statistics.median(values) for size, values in drawn.items()})
    best, *others = (_line(rounds, seconds, send_s) for seconds in draws)
    return Fit(best, tuple(others))


def _line(rounds: Rounds, seconds: dict[float, float], send_s: float) -> Link:
    """The link that fits these times best."""
    counts = np.array([[rounds.rounds, rounds.passes * size] for size in seconds])
    counts /= np.array(list(seconds.values()))[:, None]
    alpha, beta = np.linalg.lstsq(counts, np.ones(len(counts)), rcond=None)[0]
    if alpha < 0 or beta < 0:  # then fit the other one alone
        alone = counts.sum(0) / (counts * counts).sum(0)
        alpha, beta = (0.0, alone[1]) if alpha < 0 else (alone[0], 0.0)
    return Link(float(alpha), float(beta), send_s)


def band(values: Iterable[float]) -> tuple[float, float]:
    """The range of 90 of 100 values.

    >>> band(range(101))
    (5.0, 95.0)
    """
    low, high = np.quantile(list(values), BAND)
    return float(low), float(high)
