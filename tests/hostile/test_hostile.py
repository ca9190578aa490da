"""Files that mean harm: readers refuse them with words, and do nothing else.

A short run of each target of `tests/fuzz`, and its guard itself: does it see what it is there for?
docs/tried.md has the figures of the long runs, test_hostile_files.py what they found.
"""

from __future__ import annotations

import os
import pickle
import re
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from d2lmini import MXNetError

pytestmark = pytest.mark.filterwarnings("ignore:Accumulating with float16")

ROOT = Path(__file__).parents[2]
FUZZ = ROOT / "tests" / "fuzz"

NAMES = (
    "params", "nd.load", "symbol", "states", "checkpoint", "notebook", "trace", "idx", "cifar",
    "image",
)  # fmt: skip


@pytest.fixture(scope="module")
def targets():
    """tests/fuzz/targets.py, whose valid files take a moment to make."""
    sys.path.insert(0, str(FUZZ))
    try:
        import targets

        yield targets
    finally:
        sys.path.remove(str(FUZZ))


# -- the fuzzer itself -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_short_fuzz(targets, name: str, capsys):
    if name == "image":
        pytest.importorskip("PIL")
    with targets.Run(name) as run:
        target = run.target

        @settings(
            max_examples=12, deadline=None, database=None, derandomize=True,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(st.sampled_from(target.seeds), st.randoms(use_true_random=False))
        def one(valid, random):
            data = target.mutate(random, valid, target.seeds)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert run.feed(data) is None, data

        one()
    assert run.inputs >= 6


@pytest.mark.parametrize("name", NAMES)
def test_the_valid_files_are_read(targets, name: str):
    """Else the hostile ones would be refused for another reason than theirs."""
    if name == "image":
        pytest.importorskip("PIL")
    with targets.Run(name) as run:
        refused = 0
        for data in run.target.seeds:
            Path(run.path).write_bytes(data)
            try:
                run.target.read(run.path, data)
            except run.target.errors:
                refused += 1
    mixed = ("params", "nd.load", "symbol")  # sparse arrays among them, shapes that do not fit
    assert refused == 0 or (name in mixed and refused < len(run.target.seeds))


_CODE = compile("x = 1", "x", "exec")


def _writes(tmp_path):
    (tmp_path.parent / "escaped").write_bytes(b"")


@pytest.mark.parametrize(
    ("read", "kind", "words"),
    [
        (lambda p: exec(_CODE), "must not", "exec"),
        (lambda p: eval("1 + 1"), "must not", "compile"),
        (lambda p: pickle.loads(pickle.dumps(np.float32)), "must not", "pickle.find_class"),
        (lambda p: __import__("this_is_not_there"), "must not", "import"),
        (_writes, "must not", "for writing"),
        (lambda p: os.rename(p / "a", p.parent / "b"), "must not", "os.rename"),
        (lambda p: os.remove(p.parent / "escaped"), "must not", "os.remove"),
        (lambda p: subprocess.run(["true"]), "must not", "subprocess.Popen"),
        (lambda p: socket.socket().close(), "must not", "socket."),
        (lambda p: np.empty(10**6), "memory", "8000"),
        (lambda p: {}["x"], "KeyError", "x"),
        (lambda p: (_ for _ in ()).throw(MXNetError("it is wrong")), "without the file's name", ""),
        (lambda p: (_ for _ in ()).throw(MXNetError("f.x" * 999)), "characters and more", "f.x"),
    ],
)  # fmt: skip
def test_the_guard_sees(targets, tmp_path, read, kind: str, words: str):
    import guard

    with guard.Guard(str(tmp_path)) as watch:
        limits = guard.Limits(1 << 16, 1)
        failure = watch.judge(lambda: read(tmp_path), 10, limits, (MXNetError,), "f.x")
        assert failure is not None and kind in failure.kind and words in failure.words
        assert watch.judge(lambda: (tmp_path / "mine").write_bytes(b""), 10, limits, ()) is None


# -- parameters ------------------------------------------------------------------------------------


def test_loading_parameters_imports_no_pickle():
    wanted = re.compile(
        r"^\s*(?:import|from)\s+(?:pickle|marshal|shelve|dill|cloudpickle|joblib)\b", re.MULTILINE
    )
    users = []
    for path in sorted((ROOT / "d2lmini").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert "allow_pickle" not in text, path
        if wanted.search(text):
            users.append(path.relative_to(ROOT / "d2lmini").as_posix())
    assert not users
