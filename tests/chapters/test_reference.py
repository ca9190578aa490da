"""A quiet run's figure stands beneath the reader's, for the same program and no other."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
from execute_chapters import merge
from labs import reference

from d2lmini import d2l, gpu, nd, virtual_gpus
from d2lmini.d2l import Verdict, load

QUIET, BUSY = 0.0, 1.0


def quick():
    return sum(range(9))


def long():
    return sum(range(9999))


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Sets the load that the machine seems to have; the file of references is in its folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("D2LMINI_REFERENCE", raising=False)
    now = {"elsewhere": QUIET}
    monkeypatch.setattr(load, "cores_elsewhere", lambda begin, end: now["elsewhere"])

    def record(program, chapter="one"):
        with monkeypatch.context() as context:
            context.setenv("D2LMINI_REFERENCE", str(tmp_path / "measured.json"))
            context.setenv("D2LMINI_CHAPTER", chapter)
            found = program()
        merge(tmp_path / "reference.json", tmp_path / "measured.json")
        (tmp_path / "measured.json").unlink(missing_ok=True)
        return found

    now["record"] = record
    return now


def race(**options) -> Verdict:
    return d2l.compare({"long": long, "quick": quick}, min_time=1e-4, explain=False, **options)


def test_a_comparison_shows_what_the_quiet_run_found(machine, tmp_path):
    assert race().remark == ""
    found = machine["record"](race)
    assert found.remark == "", "the run that makes the reference shows none"
    machine["elsewhere"] = BUSY
    again = race()
    assert str(again).splitlines()[0].startswith("verdict: quick is")
    assert max(map(len, str(again).splitlines())) <= 72
    assert f"reference: {found.sentence}; a quiet machine" in " ".join(str(again).split())
    assert str(again).endswith(f"\n{again.remark}")


def test_a_busy_machine_leaves_the_older_figure(machine, tmp_path):
    machine["record"](race)
    kept = (tmp_path / "reference.json").read_text()
    for busy in (BUSY, None):
        machine["elsewhere"] = busy
        machine["record"](lambda: race(rounds=5))
        assert (tmp_path / "reference.json").read_text() == kept


def test_the_find_of_a_cell_that_is_gone_is_dropped(machine, tmp_path):
    machine["record"](lambda: (race(), d2l.compare({"a": quick, "b": long}, explain=False)))
    machine["record"](race, "two")
    found = json.loads((tmp_path / "reference.json").read_text())
    assert [len(rows) for rows in found.values()] == [2, 1]
    machine["elsewhere"] = BUSY
    machine["record"](race)
    left = json.loads((tmp_path / "reference.json").read_text())
    assert [len(rows) for rows in left.values()] == [1, 1] and left["two"] == found["two"]
    assert left["one"].items() <= found["one"].items()


def test_chapters_keep_theirs_apart_and_a_broken_file_is_none(machine, tmp_path):
    machine["record"](race, "one")
    machine["record"](lambda: d2l.compare({"a": quick, "b": long}, explain=False), "two")
    assert list(json.loads((tmp_path / "reference.json").read_text())) == ["one", "two"]
    (tmp_path / "reference.json").write_text("{")
    assert race().remark == ""
    with pytest.raises(ValueError):  # it is not written over
        machine["record"](race)
    assert (tmp_path / "reference.json").read_text() == "{"


def itself(n=1):
    return itself(n - 1) if n else 0


def programs() -> dict[str, object]:
    x, n = nd.ones((2, 3)), 5
    y = nd.ones((3, 2))
    with virtual_gpus(1):
        z = nd.ones((2, 3), ctx=gpu(0))
    small, large = np.ones(3), np.ones(4)

    def twice(function):
        return lambda: function() + function()

    return {
        "small": lambda: small + 1,
        "large": lambda: large + 1,
        "twice quick": twice(quick),
        "twice long": twice(long),
        "sum": twice(sum),
        "itself": itself,
        "part": functools.partial(itself, 3),
        "other part": functools.partial(itself, n=3),
        "part of another": functools.partial(twice, quick),
        "x": lambda: x + 1,
        "y": lambda: y + 1,
        "z": lambda: z + 1,
        "n": lambda: n + 1,
        "list": lambda: [x, n] + 1,
        "default": lambda k=4: k + 1,
        "other default": lambda k=5: k + 1,
        "builtin": len,
    }


def test_the_same_program_has_the_same_key_and_others_have_others():
    keys = {name: reference.key_of([function], "words") for name, function in programs().items()}
    again = {name: reference.key_of([function], "words") for name, function in programs().items()}
    assert keys == again
    assert len(set(keys.values())) == len(keys)
    assert reference.key_of([quick], "a") != reference.key_of([quick], "b")
