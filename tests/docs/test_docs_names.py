"""Every public name says what it is, what it returns and what it raises.

The names are those of `tools/public_names.py`, of which `make book` makes the reference. What each
must have:

- a docstring, its own or that of the method it overrides, that leads with a sentence or a formula;
- what a call gives, as an annotation (operations: as `nd` says of all of them);
- every error that stands in its own code, by name. Three kinds are said once for all, on the first
  page of the reference: TypeError, for an argument of a kind that is not taken; what a method that
  subclasses write raises until they do; and what an operation raises, which `nd` says.
"""

from __future__ import annotations

import inspect
import re

import public_names
import pytest
from public_names import HOME, Entry, all_entries, entries_of

SPACES = " ".join(public_names.SPACES.values()).split()
SAID_FOR_ALL = {"TypeError", "NotImplementedError", "NotImplementedForSymbol", "HiddenWait"}


def faults(entry: Entry) -> list[str]:
    """What the words of a name leave open."""
    if entry.kind in ("module", "value"):
        return []
    lead = " ".join(entry.doc.partition("\n\n")[0].split())
    found = []
    if not lead:
        return ["has no docstring"]
    if not re.search(r"[.:?!`)]$", lead) or lead.strip("`.") == entry.name:
        found.append(f"leads with no sentence: {lead[-60:]!r}")
    if entry.kind in ("function", "method", "property") and not entry.returns:
        found.append("does not say what it returns (no annotation)")
    words = entry.doc + (inspect.getdoc(entry.owner) or "" if entry.owner else "")
    if unsaid := sorted(n for n in entry.raises - SAID_FOR_ALL if n not in words):
        found.append(f"does not say that it raises {', '.join(unsaid)}")
    return found


@pytest.mark.parametrize("space", SPACES)
def test_every_name_says_what_it_is(space):
    entries = [member for entry in entries_of(space) for member in (entry, *entry.members)]
    found = [f"{e.path}: {fault}" for e in entries for fault in faults(e)]
    assert entries and not found, "\n".join(found)


def test_names_of_all_floors_are_seen():
    """The walk found what everybody knows, each where it belongs, and its place in the code."""
    entries = {entry.path: entry for entry in all_entries()}
    kinds = {
        "nd.dot": "operation",
        "nd.array": "function",
        "nd.NDArray.asnumpy": "method",
        "nd.NDArray.shape": "property",
        "gluon.nn.Dense": "class",
        "gluon.Trainer.step": "method",
        "Benchmark": "class",
        "profiler.Trace.waits": "property",
    }
    assert {path: entries[path].kind for path in kinds} == kinds
    assert entries["nd.dot"].usage.startswith("dot(lhs, rhs, transpose_a=False")
    assert entries["nd.zeros"].returns == "NDArray"
    assert entries["nd.reverse"].also == ["flip"]
    path, line = entries["nd.NDArray.asnumpy"].place
    assert "def asnumpy" in (HOME / path).read_text("utf-8").splitlines()[line - 1]
    unplaced = [e.path for e in entries.values() if e.place is None and e.kind != "value"]
    assert not unplaced, unplaced


# -- the rules, on made-up names -------------------------------------------------------------------


def silent(x: int) -> int:
    return x


def secretive(x: int) -> int:
    """The number, if it is above 0."""
    if x < 0:
        raise ValueError(f"secretive: x is 0 or more, got {x}")
    return x


def honest(x: int) -> int:
    """The number; ValueError below 0. (That it takes numbers only is said for all.)"""
    if not isinstance(x, int):
        raise TypeError(f"honest: takes a number, got {x!r}")
    if x < 0:
        raise ValueError(f"honest: x is 0 or more, got {x}")
    return x


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (silent, "has no docstring"),
        (secretive, "does not say that it raises ValueError"),
        (honest, None),
    ],
)
def test_each_fault_is_named(function, fault):
    found = faults(Entry("made.up", function.__name__, function))
    assert [fault in each for each in found] == ([True] if fault else [])
