"""The benchmark's programs and protocol work; how fast anything is, no test asks.

Every workload runs once at tiny sizes with d2lmini and NumPy; what keeps the benchmark honest is
tried on planted cheats: a program that does nothing, an engine that executed too few operations.
"""

import doctest
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import growth  # noqa: E402
import peer  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import turns  # noqa: E402
import workloads  # noqa: E402
from peers.numpy_side import NumPy  # noqa: E402
from peers.torch_side import Torch  # noqa: E402

# The whole command starts processes by the dozen, on a machine that others may use.
pytestmark = pytest.mark.timeout(300)
#: It compiles for seconds, however few pictures there are.
SLOW = "resnet_train"


def tiny(page: Path, names: list[str]) -> subprocess.CompletedProcess:
    """A tiny run of the command, as `make bench` starts it, with these workloads."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("D2LMINI_")}
    chosen = [word for name in names for word in ("--only", name)]
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / "run.py"), "--tiny", "--markdown", str(page), *chosen],
        capture_output=True,
        text=True,
        env=environment,
        timeout=280,
    )


def check(done: subprocess.CompletedProcess, page: Path, names: list[str]) -> str:
    """Every workload has a time of d2lmini, and of NumPy if NumPy can do it; the page."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no time" not in done.stdout
    text = page.read_text(encoding="utf-8")
    for name in names:
        table = text.split(f"## {name}: ")[1].split("\n## ")[0]
        assert "| d2lmini |" in table
        assert ("| numpy |" in table) == bool(NumPy().programs(workloads.WORKLOADS[name].program))
    return text


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of all workloads but the slow one."""
    path = tmp_path_factory.mktemp("bench") / "page.md"
    names = [name for name in workloads.WORKLOADS if name != SLOW]
    return check(tiny(path, names), path, names)


def test_every_workload_runs_with_d2lmini_and_with_numpy(page):
    assert page.count("\n## ") == len(workloads.TABLE) - 1 + 1


@pytest.mark.stress
def test_so_does_the_slow_one(tmp_path):
    path = tmp_path / "page.md"
    assert f"| {SLOW} | " in check(tiny(path, [SLOW]), path, [SLOW])


def test_the_page_names_targets_and_machine_but_no_place(page):
    assert "large_add beside numpy: ratio " in page
    assert "small_add beside mxnet: ratio not measured, target <= 0.167" in page
    assert f"numpy {np.__version__}" in page and "cores" in page
    assert str(BENCHMARKS.parent) not in page and sys.prefix not in page


def test_a_process_answers_each_line_and_survives_a_wrong_one():
    lines = ["hello", "prepare small_add|tiny", "run numpy", "run nobody", "run numpy out"]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "peer.py"), "numpy"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=60,
    )
    hello, prepared, first, unknown, last = map(json.loads, done.stdout.splitlines())
    assert hello["library"] == f"numpy {np.__version__}"
    assert prepared == {"rows": ["numpy", "numpy out"], "problems": {}}
    assert first["seconds"] > 0 and last["seconds"] > 0
    assert unknown == {"error": "KeyError: 'nobody'"}


@pytest.mark.parametrize("name", [w.name for w in workloads.TABLE if w.program != "import_it"])
def test_a_wrong_answer_is_seen(name):
    """Zeros, the right numbers of a wrong dtype, and the wrong shape are all refused."""
    workload = workloads.WORKLOADS[name]
    n, _ = workload.modes["tiny"]
    if hasattr(workload.check, "right"):
        right = workload.check.right(n)
    elif workload.answer is None:
        right = np.random.default_rng(0).standard_normal((n, 1000)).astype(np.float32)
    else:
        right = np.asarray(workload.answer(*workload.inputs("tiny")))
    assert workload.problem("tiny", right) is None
    assert workload.problem("tiny", np.zeros_like(right))
    assert "dtype" in workload.problem("tiny", right.astype(np.float64))
    assert workload.problem("tiny", np.append(right, np.float32(0)))


class Idle(NumPy):
    """A side that cheats: its sum does nothing."""

    def sum(self, calls, x):
        return self.repeat(calls, lambda: np.float32(0))


class Forgetful(NumPy):
    """A side whose engine executes one operation too few in every turn."""

    done = 0

    def executed(self):
        return self.done

    def add(self, calls, x):
        turn = super().add(calls, x)

        def counted():
            self.done += calls - 1
            return turn()

        return counted


def hosting(side):
    process = peer.Peer("numpy")
    process.sides = [side]
    return process


def test_a_program_that_does_nothing_gets_no_time():
    answer = hosting(Idle()).prepare("sum", "tiny")
    assert answer["rows"] == [] and "values differ" in answer["problems"]["numpy"]


def test_unexecuted_operations_are_an_error():
    answer = hosting(Forgetful()).prepare("small_add", "tiny")
    assert "9 operations executed, the workload counts 10" in answer["problems"]["numpy"]


def test_the_libraries_take_turns_and_each_round_begins_with_another():
    asked = []

    class Scripted:
        cpu_s = float

        def __init__(self, name, seconds):
            self.name, self.seconds = name, iter(seconds)

        def ask(self, request):
            if request.startswith("prepare"):
                return {"rows": [self.name], "problems": {}}
            asked.append(self.name)
            return {"seconds": next(self.seconds)}

    pair = [Scripted("d2lmini", [1, 2, 3]), Scripted("numpy", [4, 5, 6])]
    outcome = run.measure(workloads.WORKLOADS["large_add"], pair, "tiny", 3, turns.Referee())
    assert asked == ["d2lmini", "numpy", "numpy", "d2lmini", "d2lmini", "numpy"]
    assert outcome.seconds == {"d2lmini": [1, 2, 3], "numpy": [4, 5, 6]}
    assert report.targets([outcome])[0] == (
        "large_add beside numpy: ratio 0.4 (0.325 - 0.45), target <= 0.6: met"
    )


def test_no_round_is_begun_that_would_end_after_the_share_of_a_workload(monkeypatch):
    """Scripted: a round takes two seconds, and two workloads share twelve."""
    clock = {"now": 0.0}

    class Scripted:
        name, cpu_s = "d2lmini", float

        def ask(self, request):
            clock["now"] += 2 * request.startswith("run")
            return {"rows": [self.name], "problems": {}, "seconds": 1}

    monkeypatch.setattr(run.time, "monotonic", lambda: clock["now"])
    budget = run.Budget(0.2, 2)
    turns_taken = []
    for rounds in (2, 9):
        end_s = budget.share_ends_s()
        arguments = ([Scripted()], "tiny", rounds, turns.Referee(), end_s)
        outcome = run.measure(workloads.WORKLOADS["large_add"], *arguments)
        turns_taken.append(len(outcome.seconds["d2lmini"]))
    assert turns_taken == [2, 4] and budget.share_ends_s() == clock["now"]


def test_a_gain_is_compared_with_a_gain():
    seconds = {"d2lmini": [6.0], "d2lmini one": [10.0], "numpy-threads": [1.5]}
    workload = workloads.WORKLOADS["two_mlp"]
    line = report.targets([report.Outcome(workload, seconds, {})])[0]
    assert line.endswith("not measured, target <= 1.1")
    seconds["numpy-threads one"] = [3.0]
    line = report.targets([report.Outcome(workload, seconds, {})])[0]
    assert line == (
        "two_mlp beside numpy-threads: gain, ratio 1.2 (1.2 - 1.2), target <= 1.1: missed"
    )


def test_without_a_compiler_nothing_of_torch_is_compiled():
    side = object.__new__(Torch)
    side.compiler = None
    assert side.programs("chain") == {"torch": "chain"}
    side.compiler = "g++"
    assert side.programs("chain") == {"torch": "chain", "torch compile": "chain__compile"}
    assert side.programs("exp") == {"torch": "exp"}


def test_a_library_that_ends_is_reported_and_the_others_go_on():
    class Dying:
        name = "numpy"

        def ask(self, request):
            return {"error": "the process ended"}

    outcome = run.measure(workloads.WORKLOADS["small_add"], [Dying()], "tiny", 2, turns.Referee())
    assert outcome.seconds == {} and outcome.problems == {"numpy": "the process ended"}
    assert "no time: the process ended" in report.text(outcome)


DOCUMENTED = """
bare compiled growth gru loading report resnet row training workloads peers.side
""".split()


@pytest.mark.parametrize("module", DOCUMENTED)
def test_the_examples_in_docstrings(module):
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert tried and not failed


def test_growth_measures_fits_and_draws_every_curve(tmp_path, capsys):
    assert growth.main(["--tiny", "--markdown", str(tmp_path / "growth.md")]) == 0
    printed, page = capsys.readouterr().out, (tmp_path / "growth.md").read_text(encoding="utf-8")
    drawing = (tmp_path / "growth.svg").read_text(encoding="utf-8")
    for what in ("pushing a task", "draining a task", "a task in the queue", "an all-reduce"):
        assert f"{what}" in printed and f"| {what}" in page and f"{what}" in drawing
    for size in ("tasks", "Vars it reads", "devices", "examples", "units n"):
        assert f">{size}<" in drawing
    assert "(growth.svg)" in page and str(tmp_path) not in page


def test_a_queue_that_grows_faster_than_its_tasks_is_seen():
    sizes = [10**i for i in range(2, 7)]
    for power, verdict in ((0.0, "as expected"), (0.2, "grows faster")):
        curve = growth.Curve("a task", "tasks", "us", sizes, [5 * n**power for n in sizes], 0)
        assert curve.exponent == pytest.approx(power) and curve.verdict == verdict


def test_two_trees_take_turns():
    command = [sys.executable, str(BENCHMARKS / "trees.py"), str(turns.REPOSITORY)]
    command += ["--mode", "tiny", "--rounds", "2", "small_add"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    title, *lines, calm = done.stdout.splitlines()
    assert "median" in title and "undisturbed" in calm
    for line, row in zip(lines, ["d2lmini", "d2lmini pushed"], strict=True):
        workload, rest = line.split(row)
        ratio, low, _, high = rest.split()
        assert workload.strip() == "small_add"
        assert 0 < float(low) <= float(ratio) <= float(high)
