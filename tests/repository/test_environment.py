"""Environment variables: each wrong value is an error at import that names the variable."""

from __future__ import annotations

import re

import pytest
from worlds import ROOT, run_program

from d2lmini.base import environment

WRONG = [
    ("D2LMINI_EXIT_DEADLINE_S", "", "seconds, 0 or more"),
    ("D2LMINI_EXIT_DEADLINE_S", "10s", "seconds, 0 or more"),
    ("D2LMINI_EXIT_DEADLINE_S", "nan", "seconds, 0 or more"),
    ("D2LMINI_EXIT_DEADLINE_S", "-1", "seconds, 0 or more"),
    ("D2LMINI_CPU_WORKERS", "abc", "a number, 1 or more"),
    ("D2LMINI_CPU_WORKERS", "0", "a number, 1 or more"),
    ("D2LMINI_VIRTUAL_GPUS", "many", "a number, 0 or more"),
    ("D2LMINI_VIRTUAL_GPUS", "2.5", "a number, 0 or more"),
    ("D2LMINI_LOGICAL_GPUS", "-2", "a number, 1 or more"),
    ("D2LMINI_LINK_GB_S", "0", "GB/s, above 0"),
    ("D2LMINI_LINK_LATENCY_S", "quick", "seconds, 0 or more"),
    ("D2LMINI_ENGINE", "turbo", "one of threaded, naive, stepped"),
    ("D2LMINI_VERIFY", "yes", "0 or 1"),
    ("MXNET_ENGINE_TYPE", "Naive", "one of NaiveEngine, ThreadedEngine, ThreadedEnginePerDevice"),
    ("MXNET_UPDATE_ON_KVSTORE", "no", "0 or 1"),
]


@pytest.mark.parametrize(("name", "value", "allowed"), WRONG)
def test_a_wrong_value_names_itself(name, value, allowed, monkeypatch):
    monkeypatch.setenv(name, value)
    says = f"the environment variable {name} takes {allowed}, got {value!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
        environment.read(name)


@pytest.mark.parametrize("value", ["", "10s"])
def test_it_is_an_error_at_import_before_anything_can_be_lost(value):
    code, out, err = run_program("import d2lmini; print(1)", D2LMINI_EXIT_DEADLINE_S=value)
    assert code == 1 and not out
    assert err.endswith(f"D2LMINI_EXIT_DEADLINE_S takes seconds, 0 or more, got {value!r}"), err


def test_an_empty_variable_of_mxnets_is_none_and_so_is_an_empty_text(monkeypatch):
    for name, (kind, default) in environment.VARIABLES.items():
        if name.startswith("MXNET_") or kind.allowed == "a text":
            monkeypatch.setenv(name, "")
            assert environment.read(name) == default


def test_every_variable_is_read_by_the_one_parser():
    """A variable that a file asks for by itself would be checked by nothing."""
    asks = re.compile(r"environ(?:\.get\(|\[)\s*['\"]((?:D2LMINI|MXNET)_\w+)")
    found = {
        (str(path), name)
        for path in (ROOT / "d2lmini").rglob("*.py")
        if path.name != "environment.py"
        for name in asks.findall(path.read_text(encoding="utf-8"))
    }
    assert not found
