"""Data parallelism and ZeRO 1 on real processes: the program of the chapter "Split anything"."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from chapter_cells import code_of, names_in
from mpi_jobs import launched

from d2lmini import virtual_gpus

CHAPTER = "split-anything"
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The program's files, and what it starts with."""
    folder = tmp_path_factory.mktemp("job")
    for source in code_of(CHAPTER):
        if source.startswith("%%writefile"):
            head, text = source.split("\n", 1)
            (folder / head.split()[1]).write_text(text)
    return folder


@pytest.mark.parametrize("n", [2, 4])
def test_processes_train_as_devices_do(folder, n):
    """The weights, the bytes that each process sends, the bytes of its states."""
    chapter = names_in(
        CHAPTER, "def draw_weights", "def adam", "class DataParallel", "def step",
        "class Trained", "class Zero1",
    )  # fmt: skip
    values, batches, N = chapter["values"], chapter["batches"], chapter["N"]
    np.savez(folder / "start.npz", batches=np.stack(batches), values=np.stack(values))
    with virtual_gpus(n) as ctxs:
        trained = chapter["train"](chapter["Zero1"], ctxs, batches).weights
    expected = np.stack([row[0] for row in trained])
    for kind, states in (("data", 2 * N), ("zero1", 2 * N // n)):
        status, told = launched(
            n, kind, job=folder / "split.py", folder=folder, PYTHONPATH=str(ROOT)
        )
        assert status == 0, told
        says = f"{kind}: sends {2 * N * (n - 1) // n} bytes in a step, keeps {states} bytes"
        assert told.count(says) == n, told
        found = [np.load(folder / f"{kind} {rank}.npy") for rank in range(n)]
        assert all((weights == found[0]).all() for weights in found)
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-5)
