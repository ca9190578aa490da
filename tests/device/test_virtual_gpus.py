"""Virtual GPUs come and go: as a scope, as a call, from the environment; links, limits, faults."""

from __future__ import annotations

import re
import threading
import warnings
from itertools import count

import numpy as np
import pytest
from interrupts import PACKAGE, interrupt_at
from invariants import check_invariants
from worlds import until

from d2lmini import MXNetError, cpu, engine, gpu, nd, num_gpus, storage, virtual_gpus
from d2lmini.base import util
from d2lmini.compat import runtime
from d2lmini.device import blas
from d2lmini.device.devices import device_of, gpus
from d2lmini.engine.threaded import default_workers

MB = 1 << 20


def threads_of_devices() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("d2lmini-gpu")]


# -- coming and going ------------------------------------------------------------------------------


def test_a_scope():
    before, workers = gpus(), engine.stats().workers
    with virtual_gpus(2, threads=1, link_gb_s=8, memory=3 * MB) as contexts:
        assert contexts == [gpu(0), gpu(1)] and num_gpus() == 2
        assert engine.stats().workers == max(1, default_workers() - 2)
        assert repr(device_of(gpu(1))) == "<virtual device gpu(1): 0.00315 GB, link 8 GB/s>"
        nd.ones(3, ctx=gpu(0)).asnumpy()
        assert threads_of_devices()
        assert not runtime.Features().is_enabled("CUDA")
        with pytest.raises(MXNetError, match=r"gpu\(2\) is not available: this process has 2 GPUs"):
            nd.ones(3, ctx=gpu(2))
    assert gpus() == before
    assert engine.stats().workers == workers
    until(lambda: not threads_of_devices())


def test_after_the_end_arrays_say_where_they_lay():
    with virtual_gpus(1):
        x = nd.ones((5, 2000), ctx=gpu(0))
        y = (x * 2).as_in_context(cpu())
    assert y[0, 0].asscalar() == 2  # what was pending is done

    def write():
        x[:] = 3

    uses = [
        lambda: x + 1, lambda: x[1:3] + 1, lambda: x.asnumpy(), lambda: print(x), write,
        lambda: x.copyto(cpu()), lambda: y.copyto(x), lambda: nd.save("x", x), lambda: x.copy(),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(MXNetError, match=r"gpu\(0\) (that no longer exists|is not available)"):
            use()
    with virtual_gpus(1):  # another device of that name
        for use in uses:
            with pytest.raises(MXNetError, match=r"its virtual_gpus\(...\) has ended. Copy what"):
                use()
        assert storage.stats(gpu(0)).live == 0


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((-1,), "n is a number of devices, got -1"),
        (("2",), "n is a number of devices, got '2'"),
        ((1, 0), "threads of a device are 1 or more, got 0"),
        ((1, 1, 0), r"link_gb_s is a rate in GB/s above 0, .*of each device \(n=1\), got 0"),
        ((2, 1, [1, 2, 3]), r"link_gb_s .*of each device \(n=2\), got \[1, 2, 3\]"),
        ((1, 1, 1, None, "fast"), "gflops is a rate in GFLOP/s above 0, .*got 'fast'"),
        ((2, 1, 1, None, [1, -1]), r"gflops is a rate in GFLOP/s above 0, .*got \[1, -1\]"),
        ((1, 1, 1, None, 1, 0.0), "memory_gb_s is a rate in GB/s above 0, .*got 0.0"),
        ((1, 1, 1, 0), "memory is in bytes, 1 or more, got 0"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(MXNetError, match=f"virtual_gpus: {message}"):
        virtual_gpus(*arguments)
    assert num_gpus() == 0


# -- faults ----------------------------------------------------------------------------------------


def test_a_limit_exceeded_leaves_the_others_alone():
    with virtual_gpus(2, memory=8 * MB):
        large = nd.ones((3 * MB,), ctx=gpu(0))
        fits = nd.ones((MB,), ctx=gpu(1))
        with pytest.raises(MemoryError, match=r"out of memory on gpu\(0\): 12.6 MB asked for"):
            large.wait_to_read()
        assert fits[0].asscalar() == 1
        with pytest.raises(MemoryError, match=r"CopyCPU2GPU: out of memory on gpu\(1\)"):
            nd.array(np.ones(3 * MB), ctx=gpu(1)).wait_to_read()
        assert nd.ones((MB,), ctx=gpu(0))[0].asscalar() == 1
        assert gpu(1).memory_info() == util.get_gpu_memory(1) == (4 * MB, 8 * MB)
        assert util.get_gpu_count() == 2


def test_ctrl_c_everywhere():
    """Struck at every point of the scope and of copies in it: nothing stays pending, and
    `virtual_gpus(0)` leaves all as it was."""
    files = (
        *(str(path) for path in (PACKAGE / "device").glob("*.py")),
        str(PACKAGE / "ndarray" / "transfer.py"), str(PACKAGE / "engine" / "worker_pools.py"),
    )  # fmt: skip
    before = blas.threads()
    source = nd.ones(2000)
    for k in count():
        with interrupt_at(k, files) as strike, virtual_gpus(1, link_gb_s=100):
            x = source.as_in_context(gpu(0))
            y = (x + 1).as_in_context(cpu())
        virtual_gpus(0)
        if strike.done:  # a scope that Ctrl-C ends does not wait: pending work loses its device
            x = y = None
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                engine.waitall()
            for each in told:
                assert re.search(
                    r"lies on a gpu\(0\) that no longer|gpu\(0\) is not available",
                    str(each.message),
                )
        check_invariants()
        assert (num_gpus(), blas.threads(), engine.stats().pending) == (0, before, 0)
        assert engine.stats().workers == default_workers()
        if not strike.done:
            break
    assert k > 20 and y.sum().asscalar() == 4000
