"""Chrome traces of a training step by the profilers of PyTorch and JAX, for readers of traces.

    python tests/gpu/peer_traces.py [FOLDER]         # of those that are installed

Each is one step of the same MLP on the GPU, or on the CPU where there is none, gzipped and smaller
than a megabyte.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

BATCH, SIZES = 256, (784, 1024, 1024, 10)
LIMIT = 1_000_000


def torch_trace(path: Path) -> str:
    """Write PyTorch's to `path`; where it ran."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers: list = []
    for m, n in pairwise(SIZES):
        layers += [torch.nn.Linear(m, n), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers[:-1]).to(device)
    x = torch.rand(BATCH, SIZES[0], device=device)
    y = torch.zeros(BATCH, dtype=torch.long, device=device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loss = torch.nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(3):
        step()
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as found:
        step()
    found.export_chrome_trace(str(path))
    return device


def jax_trace(path: Path) -> str:
    """Write JAX's to `path`; where it ran."""
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0), len(SIZES))
    weights = [jax.random.normal(k, shape) * 0.03 for k, shape in zip(keys, pairwise(SIZES))]
    x = jax.random.uniform(keys[-1], (BATCH, SIZES[0]))

    def loss(weights: list) -> jax.Array:
        y = x
        for w in weights[:-1]:
            y = jax.nn.relu(y @ w)
        return -jnp.mean(jax.nn.log_softmax(y @ weights[-1])[:, 0])

    @jax.jit
    def step(weights: list) -> list:
        return [w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights))]

    for _ in range(3):
        weights = jax.block_until_ready(step(weights))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(step(weights))
        (written,) = Path(folder).rglob("*.trace.json.gz")
        shutil.copy(written, path)
    return jax.default_backend()


TRACES: dict[str, Callable[[Path], str]] = {"torch": torch_trace, "jax": jax_trace}


def write(folder: Path) -> bool:
    """Write those that can be had; did all go well?"""
    folder.mkdir(exist_ok=True)
    went_well = True
    for name, trace in TRACES.items():
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed: no trace of its step")
            continue
        path = folder / f"{name}-step.json.gz"
        try:
            device = trace(path)
        except Exception as problem:
            print(f"{name}: {type(problem).__name__}: {problem}")
            went_well = False
            continue
        nbytes = path.stat().st_size
        if nbytes >= LIMIT:
            path.unlink()
            went_well = False
        print(f"{name}: a step on {device}, {nbytes / 1e3:.0f} kB, {path}")
    return went_well


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results"
    sys.exit(not write(target))
