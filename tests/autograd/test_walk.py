"""The walk back in small steps: counts, boundaries, both sides of each choice, each refusal."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from d2lmini import MXNetError, autograd, engine, gluon, nd
from d2lmini import np as np_arrays
from d2lmini.autograd import tape
from d2lmini.base import callsite
from d2lmini.graph.symbolic_trace import FallbackToEager, SymbolicTrace


def leaf(values: Any, req: str = "write", kind: Any = nd) -> Any:
    x = kind.array(values, dtype="float32")
    x.attach_grad(req)
    return x


def values(*arrays: Any) -> list[Any]:
    return [x if x is None else x.asnumpy().tolist() for x in arrays]


# -- heads and modes -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [nd, np_arrays], ids=["nd", "np"])
@pytest.mark.parametrize("shape", [(2,), (2, 1), (1, 2)])
def test_head_gradients_of_each_shape_and_kind(kind, shape):
    x = leaf([[1, 2]], kind=kind)
    head = kind.array([3, 4], dtype="float32").reshape(shape)
    with autograd.record():
        y = x * x
    y.backward(head, retain_graph=True)
    assert values(x.grad) == [[[6, 16]]] and type(x.grad) is type(x)
    (g,) = autograd.grad(y, x, head)
    assert values(g) == [[[6, 16]]] and type(g) is type(x)


REFUSED_IN_A_TRACE = {
    "backward": lambda x: autograd.backward(x),
    "autograd.grad": lambda x: autograd.grad(x, x),
    "attach_grad": lambda x: autograd.mark_variables(x, x),
    "autograd.checkpoint": lambda x: autograd.checkpoint(nd.tanh, x),
    "Parts, an autograd.Function": lambda x: Parts()(x, x),
    "autograd.is_recording": lambda x: autograd.is_recording(),
    "autograd.set_recording": lambda x: autograd.set_recording(True),
    "autograd.set_training": lambda x: autograd.set_training(True),
    "a scope of autograd": lambda x: autograd.record().__enter__(),
}


@pytest.mark.parametrize("name", REFUSED_IN_A_TRACE)
def test_what_no_graph_can_have_is_refused_in_a_trace(name):
    trace = SymbolicTrace(["x"], [nd.ones(1)._spec], shaped=True)
    with pytest.raises(FallbackToEager, match=name.replace(".", r"\.")) as caught:
        trace.run(lambda x: REFUSED_IN_A_TRACE[name](x))
    assert caught.value.site is not None


# -- leaves ----------------------------------------------------------------------------------------


def test_each_grad_req_and_what_is_written():
    x, z, w = leaf([1], "write"), leaf([2], "add"), leaf([3], "null")
    for times in (1, 2):
        with autograd.record(), warnings.catch_warnings():
            warnings.simplefilter("error")
            y = x * z * w
        y.backward()
        assert values(x.grad, z.grad) == [[6], [3 * times]]
        assert w.grad is None and tape.history(w) is None, "the first backward made it a constant"
    before, fresh = x.grad, x._node[0]
    assert fresh.fresh and fresh.name == "leaf" and x.grad is before
    fresh.fresh = False
    with autograd.record():
        y = nd.dot(x.reshape((1, 1)), z.reshape((1, 1)))
    y.backward()
    assert fresh.fresh and z._node[0].fresh and values(x.grad) == [[2]]


# -- grad ------------------------------------------------------------------------------------------


def test_zeros_where_no_gradient_flows_have_a_history_if_asked():
    x, z = leaf([2.0]), leaf([3.0])
    with autograd.record():
        y = nd.BlockGrad(x) + z
        (g,) = autograd.grad(y, x, create_graph=True, retain_graph=True)
        (h,) = autograd.grad(y, x, retain_graph=True)
    assert values(g, h) == [[0], [0]]
    assert tape.history(g) is not None and tape.history(h) is None
    g.backward()
    assert values(x.grad) == [[0]]


# -- functions and checkpoints ---------------------------------------------------------------------


class Pair(NamedTuple):
    a: Any
    b: Any


class Parts(autograd.Function):
    def forward(self, x, scale):
        self.save_for_backward(x, 3)
        return Pair(x * scale, x)

    def backward(self, g, h):
        x, three = self.saved_tensors
        self.kinds = [type(g), type(h), type(x), h.asnumpy().tolist()]
        assert tape.history(x) is None and three == 3
        return g * 3 + h, None


@pytest.mark.parametrize("kind", [nd, np_arrays], ids=["nd", "np"])
def test_what_a_function_is_given_and_keeps(kind):
    x, scale, function = leaf([1, 2], kind=kind), kind.array([5.0, 5.0]), Parts()
    with autograd.record():
        result = function(x, scale)
        y = result.a * 2
    assert values(*result) == [[5, 10], [1, 2]] and result.b is not x
    assert function.saved_tensors == (), "they are kept by the tape now"
    x[:] = 9
    y.backward()
    assert function.kinds == [type(x), type(x), type(x), [0, 0]] and values(x.grad) == [[6, 6]]
    assert function.saved_tensors == ()
    assert function(x, scale).a._node is None, "nothing is recorded"
    assert function.saved_tensors[1] == 3
    for call, words in [
        (
            lambda: function(x, 3),
            "Parts: input 1 must be an NDArray, got int; give other things to",
        ),
        (lambda: type("F", (Parts,), {"forward": lambda self, x: 5.0})()(x), "not iterable"),
        (lambda: type("F", (Parts,), {"forward": lambda self, x: [x, 1]})()(x), "must return NDAr"),
    ]:
        with pytest.raises(TypeError, match=words):
            call()
    for method in ("forward", "backward"):
        with pytest.raises(NotImplementedError, match=f"Function defines no {method}"):
            getattr(autograd.Function(), method)(x)


@pytest.mark.parametrize("what", ["function", "checkpoint", "op", "net"])
def test_what_a_node_saved_goes_with_backward(what):
    """Even if a result, which refers to the node, lives on."""
    net = gluon.nn.Dense(2, in_units=2)
    net.initialize()
    net.hybridize()
    net(nd.ones((1, 2)))
    used = Parts() if what == "function" else lambda t: t.exp()
    calls: dict[str, Callable] = {
        "function": lambda t, f=used: f(t, t).a,
        "checkpoint": lambda t, f=used: autograd.checkpoint(f, t),
        "op": lambda t: t * t,
        "net": net,
    }
    x = leaf([[1.0, 2.0]])
    with autograd.record():
        t = x * 2
        y = calls[what](t)
    saved, function, node = weakref.ref(t._chunk), weakref.ref(used), y._node[0]
    y.backward()
    engine.waitall()
    del t, used, calls
    gc.collect()
    assert saved() is None and function() is None
    assert y._node[0] is node and node.parents is None


def test_a_walk_that_meets_what_was_used_up_says_so():
    x, w = leaf([2.0]), leaf([3.0])
    with autograd.record():
        a = x * 5
        y, z = a * 1, a * w
    y.backward()
    with pytest.warns(
        UserWarning, match="no gradient goes through _mul_scalar, because an"
    ) as told:
        z.backward()
    assert "a = x * 5" in str(told[0].message) and len(told) == 1
    assert values(x.grad, w.grad) == [[5], [10]]
    with autograd.record():
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # constants that were never recorded need none
            Parts()(nd.tanh(nd.ones(1)) * w, nd.ones(1))


def test_what_is_refused_while_recording_says_what_to_do():
    x = leaf([1.0])
    with autograd.record():
        y = x * 2
        with pytest.raises(MXNetError, match=r"^x.* = value: .*part of an array(.|\n)*concat"):
            nd.zeros(2)[0:1] = y
        with pytest.raises(MXNetError, match=r"^_plus_scalar: .*has a history. Write y = x [+] 1"):
            y += 1
    assert "y = x * 2" in callsite.describe(y._node[0].site)
