"""Old spellings of public names give the new thing, with a DeprecationWarning."""

from __future__ import annotations

import importlib

import pytest

from d2lmini.renamed import RENAMED


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_gives_the_new_thing_and_warns(old, new):
    def find(path):
        home, _, name = path.rpartition(".")
        return getattr(importlib.import_module(home), name)

    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        assert find(old) is find(new)


def test_a_name_that_never_was_is_an_attribute_error():
    for module in {name.rpartition(".")[0] for name in RENAMED}:
        with pytest.raises(AttributeError):
            importlib.import_module(module).never_was
