"""Every name of `np` and `npx` that MXNet 1.9.1 has has rows, or is refused with a reason."""

from __future__ import annotations

import migration_table
import mxnet_names
import np_table
import pytest

import d2lmini as mx


def test_every_name_is_covered():
    assert np_table.missing() == []


def test_a_name_without_rows_is_missed(monkeypatch):
    monkeypatch.setattr(np_table, "uses", dict)
    assert "np.add" in np_table.missing()


@pytest.mark.parametrize("space", np_table.SPACES)
def test_a_refusal_names_what_is_left_out(space):
    left_out = migration_table.look_up(space, mxnet_names.stored()[space]).left_out
    assert space not in ("np", "npx") or left_out
    for name, reason in left_out.items():
        assert len(reason) > 10, name


@pytest.mark.parametrize(
    ("name", "words"),
    [("np.fft", "NumPy has it"), ("np.frobnicate", "has no"), ("npx.frobnicate", "it has")],
)
def test_an_unknown_name_says_what_to_do(name, words):
    space, _, last = name.partition(".")
    with pytest.raises(AttributeError, match=words):
        getattr(getattr(mx, space), last)
