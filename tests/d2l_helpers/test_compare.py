"""Races on a virtual clock, and the road of a claim from a chapter to `make claims`."""

import dataclasses
import importlib.util
import json
import time
from pathlib import Path

import nbformat
import numpy  # noqa: F401 (brings the BLAS whose threads a verdict names)
import pytest
from virtual_engine import VirtualEngine

from d2lmini import MXNetError, engine
from d2lmini.d2l import Verdict, claims, compare


@pytest.fixture
def machine(monkeypatch):
    return VirtualEngine().install(monkeypatch)


# --- races on a virtual clock ---


def test_the_race_of_the_book(machine):
    """Ten operations: 1 ms to issue, 1 ms to compute. Waiting each time costs the overlap."""

    def synchronous():
        for _ in range(10):
            machine.push(0.001, 0.001)
            machine.waitall()

    def asynchronous():
        for _ in range(10):
            machine.push(0.001, 0.001)

    verdict = compare(synchronous, asynchronous, rounds=6)  # by their own names
    assert verdict.times["synchronous"] == pytest.approx([0.020] * 6)
    assert verdict.times["asynchronous"] == pytest.approx([0.011] * 6)
    assert verdict.issue["asynchronous"] == pytest.approx([0.010] * 6)
    assert verdict.drain["asynchronous"] == pytest.approx([0.001] * 6)
    assert verdict.drain["synchronous"] == pytest.approx([0] * 6)
    assert verdict.sentence.startswith("asynchronous is 1.8 times faster than synchronous (1.8-1.8")
    assert (verdict.claim, verdict.holds) == (None, None)


def test_warm_up_turns_and_rotation(machine):
    calls = []

    def runner(name):
        def run():
            calls.append(name)
            machine.spend(1)

        return run

    verdict = compare({n: runner(n) for n in "abc"}, rounds=5, warmup=2)
    # Two warm-ups and one calibration of each, then every round starts one name later; at the end,
    # beyond the clock, one of each is observed.
    assert "".join(calls) == "aabbcc" + "abc" + "abc" + "bca" + "cab" + "abc" + "bca" + "abc"
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


def test_errors_end_the_race(machine):
    def broken():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        compare({"a": lambda: machine.spend(1), "b": broken})


@pytest.mark.parametrize(
    ("candidates", "options", "error", "message"),
    [
        ({"a": list}, {}, ValueError, "two or more candidates"),
        ({"a": list, "b": [1]}, {}, TypeError, "b must be a function .* got list"),
        ({"a": list, "b": dict}, {"rounds": 0}, ValueError, "rounds >= 1"),
        ({"a": list, "b": dict}, {"warmup": -1}, ValueError, "warmup >= 0"),
    ],
)
def test_impossible_races_are_refused(candidates, options, error, message):
    with pytest.raises(error, match=message):
        compare(candidates, **options)


@pytest.mark.parametrize("functions", [(list,), (list, list), (lambda: 1, lambda: 2), ({}, list)])
def test_functions_without_names_of_their_own_are_refused(functions):
    with pytest.raises(ValueError, match=r"two or more|names that differ|not both"):
        compare(*functions)


def test_the_verdict_names_the_blas_threads(machine):
    import threadpoolctl

    if not any(p["user_api"] == "blas" for p in threadpoolctl.threadpool_info()):
        pytest.skip("this BLAS cannot be asked for its threads")
    with threadpoolctl.threadpool_limits(1):
        verdict = compare({n: lambda: machine.spend(1) for n in "ab"}, rounds=5)
    assert verdict.blas_threads == 1
    assert "1 BLAS thread)" in verdict.sentence


def test_a_blas_that_cannot_be_asked_is_not_named(machine, monkeypatch):
    import threadpoolctl

    monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: [{"user_api": "openmp"}])
    verdict = compare({n: lambda: machine.spend(1) for n in "ab"}, rounds=5)
    assert verdict.blas_threads is None and "BLAS" not in verdict.sentence


# --- the real engine ---


@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_the_real_engine_finishes_within_the_clock(kind):
    with engine.use(kind):
        race_on_the_real_engine()


def race_on_the_real_engine():
    var, done, late = engine.new_var(), [], []

    def work():
        time.sleep(0.002)
        done.append(1)

    def issue_many():
        # All that an earlier call pushed has run by the time the next round starts.
        late.append(engine.stats().pending)
        for _ in range(3):
            engine.push(work, writes=(var,))

    def issue_one():
        late.append(engine.stats().pending)
        engine.push(work, writes=(var,))

    before = engine.stats().executed
    verdict = compare({"many": issue_many, "one": issue_one}, rounds=5, warmup=0, min_time=0)
    assert late == [0] * 14
    assert len(done) == engine.stats().executed - before == 7 * 3 + 7
    # Whatever the machine does meanwhile, nobody sleeps (much) less than asked.
    assert min(verdict.times["many"]) > 0.005 and min(verdict.times["one"]) > 0.0015


def test_a_late_error_ends_the_race_and_the_engine_goes_on():
    var = engine.new_var()

    def fail():
        raise ZeroDivisionError("late")

    with pytest.raises(MXNetError, match="late"):
        compare({"fails": lambda: engine.push(fail, writes=(var,)), "fine": lambda: None})
    engine.waitall()
    assert engine.stats().pending == 0


# --- claims ---

DUEL = Verdict.from_times({"slow": [3.0] * 6, "fast one": [1.0] * 6, "fast": [1.02] * 6})


@pytest.mark.parametrize(
    ("claim", "holds"),
    [
        ("fast is faster than slow", True),
        ("fast one is faster than slow", True),
        ("fast is faster", False),  # not than "fast one"
        ("slow is slower", True),
        ("slow is slower than fast", True),
        ("slow is faster than fast", False),
        ("fast is 2.5 times faster than slow", True),
        ("fast is 3.5 times faster than slow", False),
        ("slow is 2 times slower", True),
        ("slow is 3 times slower than fast", False),
        ("fast is as fast as fast one", True),
        ("fast is as fast as slow", False),
    ],
)
def test_claims_are_read_and_decided(claim, holds):
    assert claims.parse(claim, DUEL.names)(DUEL) is holds


@pytest.mark.parametrize(
    "claim",
    ["fast is nice", "faster", "fast is faster than fast", "quick is faster", "", "fast is"],
)
def test_unreadable_claims_are_refused_before_the_race(claim):
    def never():
        raise AssertionError("the race has begun")

    with pytest.raises(ValueError, match="cannot read the claim"):
        compare({"slow": never, "fast": never}, claim=claim)


@pytest.mark.parametrize(
    ("claim", "verdict", "ratio"),
    [
        ("fast is faster", "no measurable difference", 1.02),  # its closest rival is "fast one"
        ("fast is faster than slow", "faster", 3 / 1.02),
        ("slow is slower", "slower", 3 / 1.02),
        ("slow is 2 times slower than fast one", "slower", 3),
        ("fast is as fast as slow", "faster", 3 / 1.02),
        ("so it goes", "faster", 3 / 1.02),
    ],
)
def test_a_claim_is_recorded_with_the_verdict_on_its_own_pair(claim, verdict, ratio):
    row = claims.row(dataclasses.replace(DUEL, claim=claim))
    assert row["verdict"] == verdict
    assert row["ratio"] == pytest.approx([ratio] * 3)


def test_claims_are_recorded_true_or_false(machine, monkeypatch, tmp_path):
    file = tmp_path / "claims.jsonl"
    race = {"slow": lambda: machine.spend(3), "fast": lambda: machine.spend(1)}
    compare(race, rounds=5, claim="fast is faster")
    assert not file.exists()

    monkeypatch.setenv("D2LMINI_CLAIMS", str(file))
    monkeypatch.setenv("D2LMINI_CHAPTER", "hares")
    right = compare(race, rounds=5, claim="fast is faster")
    wrong = compare(race, rounds=5, claim="slow is faster")
    own = compare(race, rounds=5, claim="thrice", holds=lambda v: v.ratio.value < 0.34)
    silent = compare(race, rounds=5)
    few = compare(race, rounds=4, claim="fast is faster")
    assert [v.holds for v in (right, wrong, own, silent, few)] == [True, False, True, None, False]

    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [line["holds"] for line in lines] == [True, False, True, False]
    assert lines[1] == {
        "chapter": "hares",
        "claim": "slow is faster",
        "holds": False,
        "verdict": "slower",
        "ratio": pytest.approx([3, 3, 3]),
        "sentence": wrong.sentence,
        "why": "",
    }
    # The others are told as faster and slower, the last pair of the race where nobody names one.
    assert [line["verdict"] for line in lines] == ["faster", "slower", "faster", "too few rounds"]
    assert lines[0]["ratio"] == pytest.approx([3, 3, 3])
    # A false claim changes nothing in what the chapter prints.
    assert wrong.sentence == right.sentence


# --- the runner behind `make claims` ---


TOOLS = str(Path(__file__).parents[1] / "tools")


def load_runner():
    path = Path(__file__).parents[1] / "benchmarks" / "claims.py"
    spec = importlib.util.spec_from_file_location("claims_runner", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_chapter(path, source):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbformat.write(notebook, path)
    return path


def test_runner_collects_the_claims_of_chapters(tmp_path, capfd):
    runner = load_runner()
    good = write_chapter(
        tmp_path / "good.ipynb",
        f"import sys, pytest; sys.path.append({TOOLS!r})\n"
        "from virtual_engine import VirtualEngine\n"
        "from d2lmini import d2l\n"
        "machine = VirtualEngine().install(pytest.MonkeyPatch())\n"
        "race = {'nap': lambda: machine.spend(4), 'blink': lambda: machine.spend(1)}\n"
        "d2l.compare(race, claim='blink is faster')\n"
        "d2l.compare(race, claim='nap is faster')\n"
        "race = {'nap': lambda: machine.spend(4), 'push': lambda: machine.push(1, 3)}\n"
        "d2l.compare(race, claim='push is faster')\n",
    )
    before = good.read_bytes()
    assert runner.main([str(good)]) == 0
    out = capfd.readouterr().out.splitlines()
    assert out[:6] == [
        "chapter  claim            verdict                   ratio             holds",
        "good     blink is faster  faster                    4.0 (4.0-4.0)     yes",
        "good     nap is faster    slower                    4.0 (4.0-4.0)     no",
        "good     push is faster   no measurable difference  1.00 (1.00-1.00)  no",
        "",
        "1 of 3 claims hold on this machine",
    ]
    assert out[7] == "good: nap is faster?"
    assert out[8].startswith("    blink is 4.0 times faster than nap (4.0-4.0, 10 rounds")
    assert out[10] == "good: push is faster?"
    assert out[11].startswith("    no measurable difference between nap and push (1.00-1.00, 10")
    assert out[11].endswith("): most of push is one operation, work, of 3 s")
    assert out[12:] == [
        "    a clock that stops when the calls return, with 1 operation of push in flight, "
        "would call it 4.0 times faster"
    ]
    assert good.read_bytes() == before
    # The rows themselves, for whoever wants to compute with them.
    kept = tmp_path / "claims.jsonl"
    runner.main([str(good), "--json", str(kept)])
    rows = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    assert [row["holds"] for row in rows] == [True, False, False]


def test_runner_tells_when_claims_fail_or_chapters_stop(tmp_path, capfd, monkeypatch):
    runner = load_runner()

    def run_chapter(path, claims_file):
        if path.stem == "broken":
            return "NameError: name 'nd' is not defined"
        row = {"chapter": path.stem, "claim": "c", "holds": False, "sentence": "s"}
        row |= {"verdict": "faster", "ratio": [12.3, 11.6, 13.4], "why": ""}
        claims_file.write_text(json.dumps(row) + "\n", encoding="utf-8")
        return None

    monkeypatch.setattr(runner, "run_chapter", run_chapter)
    assert runner.main(["fine.ipynb"]) == 0
    assert runner.main(["fine.ipynb", "--strict"]) == 1
    capfd.readouterr()
    assert runner.main(["broken.ipynb", "fine.ipynb"]) == 1
    out = capfd.readouterr().out
    assert "broken.ipynb stopped:\nNameError" in out
    assert "0 of 1 claims hold" in out
    assert "fine     c      faster   12 (12-13)  no" in out


def test_runner_reports_a_chapter_that_raises(tmp_path):
    chapter = write_chapter(tmp_path / "bad.ipynb", "1 / 0")
    assert "ZeroDivisionError" in load_runner().run_chapter(chapter, tmp_path / "claims.jsonl")
