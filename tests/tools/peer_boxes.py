"""What the boxes "In PyTorch / in JAX" of the chapters say, as programs of those libraries.

Each program asserts a part of its chapter's box in the library that it names; what is said of GPUs
stands in that library's documentation and is not run here.
"""

from __future__ import annotations

#: chapter -> the name of a library -> Python.
PROGRAMS = {
    "hybridize": {
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
    "async-computation": {
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
    "auto-parallelism": {
        "torch": """
assert torch.get_num_threads() >= 1

@torch.jit.script
def both(x):
    one = torch.jit.fork(torch.tanh, x)
    return torch.jit.wait(one) + torch.sin(x)

assert torch.allclose(both(torch.ones(2)), torch.tanh(torch.ones(2)) + torch.sin(torch.ones(2)))
""",
    },
    "multiple-gpus": {
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
    "beyond-one-machine": {
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
    "memory-and-precision": {
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
    "split-anything": {
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
    "case-files": {
        "torch": """
import inspect
import torch.cuda._sanitizer as sanitizer

assert "TORCH_CUDA_SANITIZER" in inspect.getsource(torch) + inspect.getsource(sanitizer)
assert issubclass(sanitizer.UnsynchronizedAccessError, sanitizer.SynchronizationError)
assert "stream" in torch.Tensor.record_stream.__doc__
""",
    },
}

#: What each library's programs begin with.
IMPORTS = {
    "torch": "import time\nimport numpy as np\nimport torch\n",
    "jax": (
        "import os\nos.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=4'\n"
        "import time\nimport numpy as np\nimport jax\nimport jax.numpy as jnp\n"
    ),
}
