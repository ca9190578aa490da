"""What a verdict concludes from invented timings, and the laws it obeys."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2lmini.d2l import Verdict


def noisy(seed, seconds, rounds=10, spread=0.02):
    rng = random.Random(seed)
    return [seconds * rng.lognormvariate(0, spread) for _ in range(rounds)]


def says(verdict):
    """The three booleans as one word; at most one of them is true."""
    words = [w for w in ("faster", "slower", "no_difference") if getattr(verdict, w)]
    assert len(words) <= 1
    return words[0] if words else "nothing"


# --- verdicts on invented timings ---


def test_a_clear_difference_and_its_sentence():
    verdict = Verdict(
        {"synchronous": [1.9] * 10, "asynchronous": [1.0] * 8 + [1.05, 0.95]}, blas_threads=2
    )
    assert says(verdict) == "faster"
    assert verdict.ratio.value == pytest.approx(1 / 1.9)
    assert str(verdict) == repr(verdict)
    first, second = str(verdict).splitlines()
    assert first == "verdict: asynchronous is 1.9 times faster than synchronous (1.9-1.9, 10"
    assert second == "         rounds, 2 BLAS threads)"
    assert verdict.names == ["synchronous", "asynchronous"]
    assert verdict.medians == {"synchronous": 1.9, "asynchronous": 1.0}


@pytest.mark.parametrize(
    ("last", "rounds", "blas", "sentence"),
    [
        (0.05, 6, 1, "b is 20 times faster than a (20-20, 6 rounds, 1 BLAS thread)"),
        (1 / 1.1, 6, 2, "b is 1.10 times faster than a (1.10-1.10, 6 rounds, 2 BLAS threads)"),
        (1.0, 6, None, "no measurable difference between a and b (1.00-1.00, 6 rounds)"),
        (1.04, 6, None, "no measurable difference between a and b (1.04-1.04, 6 rounds)"),
        (2.0, 1, None, "too few rounds to compare a and b (1 round, at least 5 are needed)"),
    ],
)
def test_sentences(last, rounds, blas, sentence):
    verdict = Verdict({"a": [1.0] * rounds, "b": [last] * rounds}, blas_threads=blas)
    assert verdict.sentence == sentence


def test_three_candidates_are_judged_against_the_first():
    verdict = Verdict({"a": [2.0] * 5, "b": [1.0] * 5, "c": [2.02] * 5})
    assert verdict.sentence == (
        "b is 2.0 times faster than a (2.0-2.0); "
        "no measurable difference between a and c (1.01-1.01); 5 rounds"
    )
    assert says(verdict) == "no_difference"
    assert verdict.relation("b", "c") == "faster"


def test_the_interval_holds_the_true_ratio_as_often_as_it_should():
    hits = 0
    for seed in range(0, 800, 2):
        a, b = noisy(seed, 3, spread=0.3), noisy(seed + 1, 2, spread=0.3)
        ratio = Verdict({"a": a, "b": b}).ratio
        hits += ratio.low <= 2 / 3 <= ratio.high
    assert 0.95 <= hits / 400 < 1


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ({"a": [1.0]}, "two or more candidates"),
        ({"a": [1.0], "b": [1.0, 2.0]}, "rounds are paired"),
        ({"a": [], "b": []}, "at least one"),
        ({"a": [1.0], "b": [-1.0]}, "finite seconds >= 0, got b"),
        ({"a": [math.nan], "b": [1.0]}, "finite seconds >= 0, got a"),
        ({"a": [math.inf], "b": [1.0]}, "finite seconds >= 0, got a"),
    ],
)
def test_impossible_times_are_refused(times, message):
    with pytest.raises(ValueError, match=message):
        Verdict(times)


# --- laws ---

seconds = st.floats(1e-6, 1e3)
rounds_of_pairs = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=30)
MARGIN = 0.05


def verdict_of(pairs):
    return Verdict({"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}, MARGIN)


@given(rounds_of_pairs)
def test_law_swapping_the_names_inverts_the_ratio(pairs):
    there, back = verdict_of(pairs), verdict_of([(b, a) for a, b in pairs])
    assert there.ratio.value * back.ratio.value == pytest.approx(1)
    assert there.ratio.low * back.ratio.high == pytest.approx(1)
    opposite = {"faster": "slower", "slower": "faster"}
    assert says(back) == opposite.get(says(there), says(there))


@given(rounds_of_pairs, st.randoms(use_true_random=False))
def test_law_the_order_of_rounds_is_irrelevant(pairs, rng):
    shuffled = rng.sample(pairs, len(pairs))
    assert verdict_of(shuffled).sentence == verdict_of(pairs).sentence


@given(rounds_of_pairs)
def test_law_a_verdict_never_claims_both_and_never_from_few_rounds(pairs):
    verdict = verdict_of(pairs)
    word = says(verdict)  # fails if two of the three are true
    assert (word == "nothing") == (len(pairs) < 5)
    assert verdict.ratio.low <= verdict.ratio.value <= verdict.ratio.high
    if word == "faster":
        assert verdict.ratio.high < 1
    if word == "slower":
        assert verdict.ratio.low > 1
    words = {"nothing": "too few rounds", "no_difference": "no measurable difference"}
    assert words.get(word, f"times {word} than a") in verdict.sentence


def loaded(elsewhere: float, times: list[float]) -> Verdict:
    return Verdict({"a": [1.0] * len(times), "b": times}, cores=2, elsewhere=elsewhere)


def test_the_load_is_named():
    busy, calm = (loaded(cores, [0.5] * 10) for cores in (0.93, 0.2))
    assert " ".join(str(busy).split()).endswith(
        "(2.0-2.0, 10 rounds, other programs on 0.9 of 2 cores)"
    )
    assert "other" not in str(calm)
