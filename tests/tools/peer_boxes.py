"""The boxes "In PyTorch / in JAX" of the chapters, and programs that show what they say.

A box stands in its chapter to the letter. Each program asserts a part of it in the library that it
names; what is said of GPUs stands in that library's documentation and is not run here.
"""

from __future__ import annotations

from typing import NamedTuple


class Box(NamedTuple):
    """chapter, text of the box, and programs: the name of a library -> Python."""

    chapter: str
    text: str
    programs: dict[str, str]


BOXES = [
    Box(
        "hybridize",
        "`torch.jit.trace` records one call, as `hybridize` does, and warns where a Python "
        "branch depends on a value. `torch.compile` remembers what a compiled program relies "
        "on (its guards) and compiles again for another shape.",
        {
            "torch": """
import warnings
from torch._dynamo.testing import CompileCounter

def branch(x):
    return x + 1 if x.sum() > 0 else x - 1

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    traced = torch.jit.trace(branch, torch.ones(2))
assert any(issubclass(warning.category, torch.jit.TracerWarning) for warning in told)
assert traced(-torch.ones(2)).tolist() == [0, 0]  # the branch of the first call
counter = CompileCounter()
double = torch.compile(lambda x: x * 2, backend=counter, dynamic=False)
double(torch.ones(2)), double(torch.ones(2)), double(torch.ones(3))
assert counter.frame_count == 2
""",
        },
    ),
    Box(
        "async-computation",
        "On the CPU an operation of PyTorch returns when its result is computed; only "
        "operations on a GPU are queued. An operation of JAX returns early on the CPU too, "
        "and `y.block_until_ready()` is what `y.wait_to_read()` is here.",
        {
            "torch": """
a = torch.randn(1500, 1500)
a @ a
begin = time.perf_counter()
y = a @ a
called = time.perf_counter()
y[0, 0].item()
assert time.perf_counter() - called < 0.2 * (called - begin)
""",
            "jax": """
a = jnp.ones((2000, 2000))
(a @ a).block_until_ready()
early = []
for _ in range(5):
    begin = time.perf_counter()
    y = a @ a
    called = time.perf_counter()
    y.block_until_ready()
    early.append(time.perf_counter() - called > called - begin)
assert any(early)
""",
        },
    ),
    Box(
        "auto-parallelism",
        "On the CPU PyTorch runs one operation after the other, each on "
        "`torch.get_num_threads()` threads. Operations that do not depend on each other run "
        "side by side only if the program says so: `torch.jit.fork` starts a function, "
        "`torch.jit.wait` takes its result.",
        {
            "torch": """
assert torch.get_num_threads() >= 1

@torch.jit.script
def both(x):
    one = torch.jit.fork(torch.tanh, x)
    return torch.jit.wait(one) + torch.sin(x)

assert torch.allclose(both(torch.ones(2)), torch.tanh(torch.ones(2)) + torch.sin(torch.ones(2)))
""",
        },
    ),
    Box(
        "multiple-gpus",
        "`torch.nn.parallel.DistributedDataParallel` uses one process for each GPU, and sums "
        "gradients in buckets while backward is still running (`bucket_cap_mb`). In JAX "
        "`jax.lax.psum` is the all-reduce, inside a function that `jax.shard_map` runs on all"
        " devices.",
        {
            "torch": """
import inspect
from torch.nn.parallel import DistributedDataParallel

assert "bucket_cap_mb" in inspect.signature(DistributedDataParallel).parameters
""",
            "jax": """
from jax.sharding import Mesh, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("k",))
total = jax.shard_map(lambda x: jax.lax.psum(x, "k"), mesh=mesh, in_specs=P("k"), out_specs=P())
assert total(jnp.arange(4.0)).tolist() == [6.0]
""",
        },
    ),
    Box(
        "beyond-one-machine",
        "`torchrun --nproc_per_node=4 train.py` starts processes as `d2lmini launch -n 4` "
        "does, and `torch.distributed.all_reduce(x)` sums an array over them, on CPUs with "
        "the library gloo. In JAX `jax.distributed.initialize()` joins the processes, and "
        "arrays are split over all their devices.",
        {
            "torch": """
import os
import tempfile
import torch.distributed as dist

file = os.path.join(tempfile.mkdtemp(), "store")
dist.init_process_group("gloo", init_method=f"file://{file}", rank=0, world_size=1)
x = torch.ones(3)
dist.all_reduce(x)
assert x.tolist() == [1, 1, 1]
dist.destroy_process_group()
""",
            "jax": "assert callable(jax.distributed.initialize)",
        },
    ),
    Box(
        "memory-and-precision",
        "`torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)` and "
        "`jax.checkpoint(f)(x)` compute `f` again in backward. `torch.autocast` casts as "
        "`amp.init` does here, and `torch.amp.GradScaler` scales the loss; JAX leaves both to "
        "the program.",
        {
            "torch": """
from torch.utils.checkpoint import checkpoint

calls = []

def f(x):
    calls.append(x)
    return (x * x).tanh()

x = torch.ones(3, requires_grad=True)
checkpoint(f, x, use_reentrant=False).sum().backward()
assert len(calls) == 2
with torch.autocast("cpu", dtype=torch.bfloat16):
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
assert torch.amp.GradScaler
""",
            "jax": """
def f(x):
    return jnp.tanh(jnp.tanh(x))

x = jnp.ones(3)
kept, again = (
    str(jax.make_jaxpr(jax.grad(lambda x: g(x).sum()))(x)).count("tanh")
    for g in (f, jax.checkpoint(f))
)
assert again > kept
""",
        },
    ),
    Box(
        "split-anything",
        "PyTorch's `fully_shard(net)` (`torch.distributed.fsdp`) is ZeRO 3: each layer is "
        "gathered before it computes. With `reshard_after_forward=False` it stays whole until "
        "backward, as in exercise 6. `ColwiseParallel` and `RowwiseParallel` cut a layer by "
        "columns and by rows, and `torch.distributed.pipelining` has the schedules of sections "
        "6 and 7 (`ScheduleGPipe`, `Schedule1F1B`), and `ScheduleInterleaved1F1B`. In JAX a "
        "program says only where an array lies (`NamedSharding`), and `jax.jit` adds the "
        "communication.",
        {
            "torch": """
import inspect
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

parameters = inspect.signature(fully_shard).parameters
assert "reshard_after_forward" in parameters
text = " ".join(fully_shard.__doc__.split())
assert "all-gather" in text and "reduce-scatter" in text
assert ColwiseParallel and RowwiseParallel
""",
            "jax": """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("k",))
X = jnp.ones((4, 8))
A, B = jnp.ones((8, 16)), jnp.ones((16, 8))
by_columns, by_rows = NamedSharding(mesh, P(None, "k")), NamedSharding(mesh, P("k", None))
block = jax.jit(lambda X, A, B: jax.nn.relu(X @ A) @ B)
split = block(X, jax.device_put(A, by_columns), jax.device_put(B, by_rows))
assert (split == block(X, A, B)).all()
""",
        },
    ),
    Box(
        "case-files",
        "PyTorch has such a check for real GPUs, the CUDA sanitizer: start a program with "
        "`TORCH_CUDA_SANITIZER=1`. `tensor.record_stream(stream)` tells PyTorch's allocator that "
        "another stream uses the memory, too.",
        {
            "torch": """
import inspect
import torch.cuda._sanitizer as sanitizer

assert "TORCH_CUDA_SANITIZER" in inspect.getsource(torch) + inspect.getsource(sanitizer)
assert issubclass(sanitizer.UnsynchronizedAccessError, sanitizer.SynchronizationError)
assert "stream" in torch.Tensor.record_stream.__doc__
""",
        },
    ),
]

#: What each library's programs begin with.
IMPORTS = {
    "torch": "import time\nimport numpy as np\nimport torch\n",
    "jax": (
        "import os\nos.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=4'\n"
        "import time\nimport numpy as np\nimport jax\nimport jax.numpy as jnp\n"
    ),
}
