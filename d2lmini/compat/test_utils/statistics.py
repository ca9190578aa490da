"""Tests that a generator of random numbers draws from the distribution that it should.

>>> import numpy as np
>>> from d2lmini import test_utils
>>> np.random.seed(1)
>>> draw = lambda n: np.random.uniform(0, 2, n)           # n independent samples
>>> test_utils.mean_check(draw, mu=1, sigma=3 ** -0.5, nsamples=1000)
True
>>> test_utils.gen_buckets_probs_with_ppf(lambda p: 2 * p, nbuckets=2)
([(0.0, 1.0), (1.0, 2.0)], [0.5, 0.5])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from d2lmini.compat.test_utils.compare import as_numpy

Generator = Callable[[int], Any]


def mean_check(generator: Generator, mu: float, sigma: float, nsamples: int = 1000000) -> bool:
    """True if the mean of the samples is within three standard errors, sigma / sqrt(n), of mu."""
    samples = as_numpy(generator(nsamples))
    return bool(abs(samples.mean() - mu) < 3 * sigma / np.sqrt(nsamples))


def var_check(generator: Generator, sigma: float, nsamples: int = 1000000) -> bool:
    """True if the variance of the samples is within three standard errors of sigma^2: each is
    sqrt(2 sigma^4 / (n - 1))."""
    samples = as_numpy(generator(nsamples))
    error = np.sqrt(2 * sigma**4 / (nsamples - 1))
    return bool(abs(samples.var(ddof=1) - sigma**2) < 3 * error)


def gen_buckets_probs_with_ppf(
    ppf: Callable[[float], float], nbuckets: int
) -> tuple[list[tuple[float, float]], list[float]]:
    """(buckets, probabilities): intervals of equal probability for the quantile function `ppf`."""
    probability = 1.0 / nbuckets
    edges = [ppf(i / float(nbuckets)) for i in range(nbuckets + 1)]
    return list(pairwise(edges)), [probability] * nbuckets


def chi_square_check(
    generator: Generator, buckets: Sequence[Any], probs: Sequence[float], nsamples: int = 1000000
) -> tuple[float, np.ndarray, np.ndarray]:
    """Pearson's chi-square test: (p-value, observed counts, expected counts).

    buckets: the values of a discrete distribution, or intervals (low, high), in ascending order,
    that cover the range of a continuous one. probs: the probability of each. A small p-value means
    that the samples come from another distribution. ValueError for samples outside of the buckets,
    ImportError without SciPy.
    """
    try:
        from scipy.stats import chisquare
    except ImportError:
        raise ImportError("chi_square_check needs SciPy: pip install scipy") from None
    samples = as_numpy(generator(nsamples)).ravel()
    if isinstance(buckets[0], (list, tuple)):
        edges = np.array([low for low, _ in buckets[1:]])
        places = np.searchsorted(edges, samples, side="right")
        observed = np.bincount(places, minlength=len(buckets))
    else:
        observed = np.array([np.count_nonzero(samples == value) for value in buckets])
    expected = (nsamples * np.asarray(probs, dtype=float)).astype(np.int32)
    if observed.sum() != len(samples):
        raise ValueError(
            f"chi_square_check: {len(samples) - observed.sum()} of {len(samples)} samples are in "
            "none of the buckets"
        )
    scale = observed.sum() / expected.sum()  # SciPy wants equal sums
    return float(chisquare(observed, expected * scale).pvalue), observed, expected


def verify_generator(
    generator: Generator,
    buckets: Sequence[Any],
    probs: Sequence[float],
    nsamples: int = 1000000,
    nrepeat: int = 5,
    success_rate: float = 0.2,
    alpha: float = 0.05,
) -> list[float]:
    """The p-values of `nrepeat` runs of `chi_square_check`. AssertionError if fewer than the share
    `success_rate` of them exceed `alpha`."""
    runs = [chi_square_check(generator, buckets, probs, nsamples) for _ in range(nrepeat)]
    p_values = [p for p, _, _ in runs]
    passed = sum(p > alpha for p in p_values)
    if passed < nrepeat * success_rate:
        _, observed, expected = runs[-1]
        raise AssertionError(
            f"verify_generator: {passed} of {nrepeat} p-values exceed {alpha}: {p_values}\n"
            f"buckets={list(buckets)}\nobserved={observed}\nexpected={expected}"
        )
    return p_values
