"""An op's kernel for a kind of device: used there eagerly and in programs, and nowhere else."""

from __future__ import annotations

import pytest
from fakes import cuda_cpp
from gpu_kinds import fake_gpus

from d2lmini import gpu, nd
from d2lmini.gluon import nn
from d2lmini.ops.core import registry

pytestmark = pytest.mark.skipif(cuda_cpp.COMPILER is None, reason="there is no g++")


@pytest.fixture
def calls():
    """What the GPU's kernel of `flip` was called with; its results are 100 larger."""
    flip, seen = registry["reverse"], []

    @flip.kernel("cuda")
    def _(xp, data, *, axis, out=None):
        seen.append((xp, axis))
        y = flip.compute(xp, data, axis=axis) + 100
        if out is None:
            return y
        xp.copyto(out, y)
        return out

    try:
        yield seen
    finally:
        del flip.kernels["cuda"]


class Flip(nn.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.reverse(x, axis=0)


@pytest.mark.parametrize("hybridized", [False, True])
def test_a_kernel_is_used_on_its_devices_alone(calls, hybridized):
    with fake_gpus() as fake:
        net = Flip()
        if hybridized:
            net.hybridize()
        assert net(nd.array([1, 2])).asnumpy().tolist() == [2, 1]
        assert not calls
        assert net(nd.array([1, 2], ctx=gpu(0))).asnumpy().tolist() == [102, 101]
        assert calls[-1] == (fake, (0,))  # before, its launches could not be recorded
        nd.waitall()
