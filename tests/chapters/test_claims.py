"""The claims of chapters about speed: read, decided, and collected by `make claims`."""

import importlib.util
import json
import sys
from pathlib import Path

import nbformat
import pytest

from d2lmini.d2l import Verdict

TESTS = Path(__file__).parents[1]


def load_runner():
    spec = importlib.util.spec_from_file_location("claims", TESTS / "benchmarks" / "claims.py")
    module = sys.modules["claims"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


claims = load_runner()

DUEL = Verdict({"slow": [3.0] * 6, "fast one": [1.0] * 6, "fast": [1.02] * 6})


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
def test_unreadable_claims_are_refused(claim):
    with pytest.raises(ValueError, match="cannot read the claim"):
        claims.parse(claim, DUEL.names)


# --- the runner behind `make claims` ---


TOOLS = str(TESTS / "tools")


def write_chapter(path, source):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbformat.write(notebook, path)
    return path


def test_runner_collects_the_claims_of_chapters(tmp_path, capfd):
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
    kept = tmp_path / "claims.jsonl"
    assert claims.main([str(good), "--json", str(kept)]) == 0
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
    assert out[12:] == []
    assert good.read_bytes() == before
    # The rows themselves, for whoever wants to compute with them.
    rows = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    assert [row["holds"] for row in rows] == [True, False, False]
