"""Races on a virtual clock."""

import itertools
import math
import random
from collections import Counter

import numpy  # noqa: F401 (brings the BLAS whose threads a verdict names)
import pytest
from virtual_engine import VirtualEngine

from d2lmini import MXNetError, engine
from d2lmini.d2l import compare


@pytest.fixture
def machine(monkeypatch):
    return VirtualEngine().install(monkeypatch)


# --- races on a virtual clock ---


def test_warm_up_turns_and_rotation(machine):
    calls = []

    def runner(name):
        def run():
            calls.append(name)
            machine.spend(1)

        return run

    verdict = compare({n: runner(n) for n in "abc"}, rounds=5)
    # A warm-up and one calibration of each, then every round starts one name later; at the end,
    # beyond the clock, one of each is observed.
    assert "".join(calls) == "abc" + "abc" + "abc" + "bca" + "cab" + "abc" + "bca" + "abc"
    assert verdict.rounds == 5


def test_work_from_before_is_not_billed_and_cold_starts_neither(machine):
    seen = set()

    def runner(name):
        def run():
            machine.push(0.01, 0.01 if name in seen else 50)
            seen.add(name)

        return run

    machine.push(0, 1000)
    verdict = compare({n: runner(n) for n in "ab"}, rounds=5)
    assert verdict.times["a"] == verdict.times["b"] == pytest.approx([0.02] * 5)


def test_tiny_functions_are_repeated_until_the_clock_can_tell(machine):
    calls = {"a": 0, "b": 0}

    def runner(name, seconds):
        def run():
            calls[name] += 1
            machine.spend(seconds)

        return run

    verdict = compare({"a": runner("a", 1e-6), "b": runner("b", 0.5)}, rounds=5, min_time=0.01)
    assert verdict.times["a"] == pytest.approx([1e-6] * 5)
    assert calls == {"a": 1 + (2**15 - 1) + 6 * 2**14, "b": 1 + 1 + 6}


@pytest.mark.parametrize(
    ("candidates", "options", "error", "message"),
    [
        ({"a": list}, {}, ValueError, "two or more candidates"),
        ({"a": list, "b": [1]}, {}, TypeError, "b must be a function, got list"),
        ({"a": list, "b": dict}, {"rounds": 0}, ValueError, "rounds >= 1"),
    ],
)
def test_impossible_races_are_refused(candidates, options, error, message):
    with pytest.raises(error, match=message):
        compare(candidates, **options)


# --- on a machine that is not quiet ---


class Noise:
    """How many times longer a lap takes than it should, lap after lap."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.laps = 0

    def quiet(self):
        return self.random.lognormvariate(0, 0.01)

    def scattered(self):
        return self.random.lognormvariate(0, 0.06)

    def heavy_tailed(self):
        """A quarter of the laps is disturbed, some of these for long."""
        longer = self.random.paretovariate(2.5) - 1 if self.random.random() < 0.25 else 0
        return self.quiet() * (1 + longer)

    def drifting(self):
        """The clock rate falls by a third, and comes back."""
        self.laps += 1
        return self.random.lognormvariate(0, 0.03) * (1 + 0.5 * abs(math.sin(self.laps / 15)))


def verdicts_on(machine, noise, factor, comparisons):
    """What comparisons say of a function that takes `factor` times as long as another."""
    said = Counter()
    for seed in range(comparisons):
        lap = getattr(Noise(f"{seed} {noise}"), noise)
        verdict = compare(
            {
                "a": lambda lap=lap: machine.spend(0.02 * lap()),
                "b": lambda lap=lap: machine.spend(0.02 * factor * lap()),
            },
            explain=False,
        )
        said[verdict.relation("b", "a")] += 1
    return said


@pytest.mark.parametrize("noise", ["quiet", "scattered", "heavy_tailed", "drifting"])
def test_equals_are_equal_and_a_factor_of_one_and_a_seventh_is_found(machine, noise):
    assert verdicts_on(machine, noise, 1.0, 40)["no measurable difference"] == 40
    assert verdicts_on(machine, noise, 1.15, 40)["slower"] >= 38


def test_rounds_go_on_while_the_answer_is_open(machine):
    """An answer that is clear needs the rounds that were asked; one at the margin four times as
    many, unless they take too long."""

    def rounds_of(seconds, longer):
        times = itertools.cycle([1.0, longer])
        return compare(
            {
                "a": lambda: machine.spend(seconds),
                "b": lambda: machine.spend(seconds * next(times)),
            },
            rounds=6,
            explain=False,
        ).rounds

    assert rounds_of(0.02, 1.0) == 6
    assert rounds_of(0.02, 1.15) == 24
    assert rounds_of(0.15, 1.15) == 12
    assert rounds_of(1.0, 1.15) == 6


# --- the real engine ---


def test_a_late_error_ends_the_race_and_the_engine_goes_on():
    var = engine.new_var()

    def fail():
        raise ZeroDivisionError("late")

    with pytest.raises(MXNetError, match="late"):
        compare({"fails": lambda: engine.push(fail, writes=(var,)), "fine": lambda: None})
    engine.waitall()
    assert engine.stats().pending == 0
