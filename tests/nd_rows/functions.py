"""Operators as functions of Python: names, documentation, signatures, pickles, copies."""

LINES = """
nd.add.__name__, nd.add.__qualname__
nd.maximum.__name__, nd.power.__name__, nd.equal.__name__, nd.true_divide.__name__
nd.FullyConnected.__name__, nd.FullyConnected.__qualname__
nd.relu.__name__, nd.dot.__name__, nd.concat.__name__, nd.stack.__name__
nd.Cast.__name__, nd.cast.__name__
nd.flatten.__name__, nd.Flatten.__name__, nd.reshape.__name__, nd.Reshape.__name__
nd.split.__name__, nd.SliceChannel.__name__
nd.linalg.gemm2.__name__, nd.linalg_gemm2.__name__
nd.contrib.div_sqrt_dim.__name__
nd.random.uniform.__name__, nd.random_uniform.__name__, nd.uniform.__name__
nd.random_normal.__name__, nd.normal.__name__
nd.op.relu.__name__, nd._internal._plus_scalar.__name__
nd.zeros.__name__, nd.array.__name__, nd.arange.__name__
nd.split_v2.__name__
sym.FullyConnected.__name__, sym.relu.__name__, sym.dot.__name__
sym.Flatten.__name__, sym.flatten.__name__, sym.linalg.gemm2.__name__
sym.maximum.__name__, sym.pow.__name__, sym.zeros.__name__
nd.NDArray.relu.__name__, nd.NDArray.sum.__name__, nd.NDArray.reshape.__name__
nd.NDArray.sum.__qualname__
sym.Symbol.relu.__name__, sym.Symbol.sum.__name__
nd.add.__module__ == nd.maximum.__module__
isinstance(nd.FullyConnected.__doc__, str) and len(nd.FullyConnected.__doc__) > 40
isinstance(sym.FullyConnected.__doc__, str) and len(sym.FullyConnected.__doc__) > 40
isinstance(nd.add.__doc__, str) and len(nd.add.__doc__) > 40
'num_hidden' in nd.FullyConnected.__doc__
'num_hidden' in sym.FullyConnected.__doc__
callable(nd.relu), hasattr(nd.relu, '__call__')
import copy; copy.copy(nd.relu) is nd.relu
import copy; copy.deepcopy(nd.relu) is nd.relu
import copy; copy.deepcopy([nd.relu, nd.add])[0](nd.array([-1, 2]))
import copy; copy.deepcopy(sym.relu) is sym.relu
import copy; copy.deepcopy(nd.add) is nd.add
import copy; copy.deepcopy(nd.random.uniform) is nd.random.uniform
import pickle; pickle.loads(pickle.dumps(nd.add)) is nd.add
import pickle; pickle.loads(pickle.dumps(nd.maximum))(nd.ones(2), 3)
import pickle; pickle.loads(pickle.dumps(nd.zeros)) is nd.zeros
import pickle; pickle.loads(pickle.dumps(nd.random.uniform)) is nd.random.uniform
import pickle; pickle.loads(pickle.dumps(nd.linalg.gemm2)) is nd.linalg.gemm2
import pickle; pickle.loads(pickle.dumps(nd.contrib.div_sqrt_dim)) is nd.contrib.div_sqrt_dim
import pickle; pickle.loads(pickle.dumps(sym.maximum)) is sym.maximum
import pickle; pickle.loads(pickle.dumps(sym.linalg.gemm2)) is sym.linalg.gemm2
import pickle; pickle.loads(pickle.dumps(sym.zeros)) is sym.zeros
import pickle; pickle.loads(pickle.dumps(nd.NDArray.sum)) is nd.NDArray.sum
import pickle; pickle.loads(pickle.dumps(nd.NDArray)) is nd.NDArray
import pickle; pickle.loads(pickle.dumps(nd.split_v2)) is nd.split_v2
from functools import partial; partial(nd.FullyConnected, num_hidden=2, no_bias=True)(nd.ones((1, 3)), nd.ones((2, 3)))
from functools import partial; partial(nd.sum, axis=1)(nd.ones((2, 3)))
from functools import partial; partial(nd.add, nd.ones(2))(3)
from functools import partial; partial(nd.clip, a_min=0, a_max=1)(nd.array([-1, 3]))
from functools import partial; partial(nd.NDArray.sum, axis=1)(nd.ones((2, 3)))
from functools import partial; partial(sym.sum, axis=1)(sym.var('x')).list_arguments()
list(map(nd.relu, [nd.array([-1, 1]), nd.array([2, -2])]))
list(map(nd.add, [nd.ones(1), nd.ones(1)], [1, 2]))
list(map(lambda f: f(nd.array([-1])), [nd.relu, nd.abs, nd.square, nd.negative]))
from functools import reduce; reduce(nd.add, [nd.ones(2)] * 3)
from functools import reduce; reduce(nd.elemwise_mul, [nd.ones(2) * 2] * 3)
len({nd.relu, nd.relu, nd.abs})
{nd.relu: 1}[nd.relu]
nd.relu == nd.relu, nd.relu == nd.abs
nd.relu is mx.nd.relu, nd.op.relu is nd.relu
mx.nd.relu is mx.ndarray.relu, mx.sym.relu is mx.symbol.relu
sorted([nd.relu, nd.abs], key=lambda f: f.__name__)[0] is nd.abs
getattr(nd, 'relu')(nd.array([-2]))
getattr(mx.nd.op, 'relu')(nd.array([-2]))
hasattr(nd, 'nothing'), hasattr(nd.NDArray, 'relu'), hasattr(nd.ones(1), 'nothing')
nd.nothing
nd.ones(1).nothing
nd.NDArray.relu(nd.array([-1, 1]))
nd.NDArray.sum(nd.ones((2, 3)), axis=0)
import inspect; list(inspect.signature(nd.dot).parameters)[:4]
import inspect; list(inspect.signature(nd.FullyConnected).parameters)[:6]
import inspect; list(inspect.signature(nd.relu).parameters)
import inspect; list(inspect.signature(nd.topk).parameters)[:6]
import inspect; list(inspect.signature(nd.add).parameters)[:2]
import inspect; list(inspect.signature(nd.concat).parameters)
import inspect; inspect.signature(nd.concat).parameters['data'].kind.name
import inspect; list(inspect.signature(sym.dot).parameters)[:4]
import inspect; list(inspect.signature(sym.FullyConnected).parameters)
import inspect; list(inspect.signature(nd.linalg.gemm2).parameters)
import inspect; list(inspect.signature(nd.random.uniform).parameters)[:6]
import inspect; list(inspect.signature(nd.random_uniform).parameters)
import inspect; list(inspect.signature(nd.zeros).parameters)
import inspect; list(inspect.signature(nd.ones).parameters)
import inspect; list(inspect.signature(nd.full).parameters)
import inspect; list(inspect.signature(nd.empty).parameters)
import inspect; list(inspect.signature(nd.array).parameters)
import inspect; list(inspect.signature(nd.arange).parameters)
import inspect; list(inspect.signature(nd.linspace).parameters)
import inspect; list(inspect.signature(nd.eye).parameters)
import inspect; list(inspect.signature(nd.concatenate).parameters)
import inspect; list(inspect.signature(nd.moveaxis).parameters)
import inspect; list(inspect.signature(nd.from_numpy).parameters)
import inspect; list(inspect.signature(nd.NDArray.attach_grad).parameters)
import inspect; list(inspect.signature(nd.NDArray.backward).parameters)
import inspect; list(inspect.signature(nd.NDArray.astype).parameters)
import inspect; list(inspect.signature(nd.NDArray.asnumpy).parameters)
import inspect; list(inspect.signature(nd.NDArray.copyto).parameters)
import inspect; list(inspect.signature(nd.NDArray.sum).parameters)
import inspect; list(inspect.signature(autograd.backward).parameters)
import inspect; list(inspect.signature(autograd.grad).parameters)
import inspect; list(inspect.signature(autograd.record).parameters)
import inspect; list(inspect.signature(autograd.mark_variables).parameters)
import inspect; list(inspect.signature(sym.var).parameters)
import inspect; inspect.isfunction(nd.add), inspect.isfunction(nd.zeros)
import inspect; inspect.isfunction(nd.relu), inspect.isroutine(nd.relu)
[p.default for p in __import__('inspect').signature(nd.relu).parameters.values()][:1]
"""

PROGRAMS = """
class Layer:
    act = nd.relu
    def __call__(self, x):
        return type(self).act(x)
Layer()(nd.array([-1, 1]))

class Layer:
    act = staticmethod(nd.relu)
    def __call__(self, x):
        return self.act(x)
Layer()(nd.array([-1, 1]))

class Array:
    act = nd.identity
    def __call__(self):
        return self.act(nd.ones(2))
Array()()

import functools
@functools.wraps(nd.relu)
def mine(x):
    return nd.relu(x) * 2
mine.__name__, mine(nd.array([-1, 1]))

import pickle
from functools import partial
pickle.loads(pickle.dumps(partial(nd.add, rhs=2)))(nd.ones(2))

import pickle
from functools import partial
pickle.loads(pickle.dumps(partial(nd.zeros, (2,))))()

import pickle
pickle.loads(pickle.dumps({'loss': nd.add, 'x': nd.ones(2)}))['x']

import pickle
x = nd.array([[1, 2], [3, 4]], dtype='int32')
y = pickle.loads(pickle.dumps(x))
y, y.context, y.dtype

import pickle
x = nd.arange(10)
pickle.loads(pickle.dumps([x, x[2:5], x.reshape((2, 5))]))

import pickle
[pickle.loads(pickle.dumps(nd.ones((2, 3)), protocol)).shape for protocol in range(5)]

import pickle
x = nd.ones((100, 100))
for _ in range(10):
    x = nd.dot(x, x) / 100
pickle.loads(pickle.dumps(x))[0, 0]

import pickle
x = nd.random.normal(0, -1, shape=(2,))
pickle.dumps(x)

import pickle
x = nd.ones(2)
x.attach_grad()
pickle.loads(pickle.dumps(x)).grad

import pickle
x = nd.ones(2, ctx=mx.cpu(1))
pickle.loads(pickle.dumps(x)).context

import copy
x = nd.ones(2)
y, z = copy.copy(x), copy.deepcopy(x)
x[:] = 5
x, y, z

import copy
x = nd.ones(2)
x.attach_grad()
copy.deepcopy(x).grad, copy.copy(x).grad

import copy
x = nd.ones(2)
a, b = copy.deepcopy([x, x])
a is b

import copy
a, b = copy.copy([nd.ones(2)]), copy.deepcopy({'w': nd.ones(2)})
a[0], b['w']

x = nd.array([[1, 2], [3, 4]])
y = nd.NDArray.__new__(nd.NDArray)
y.__setstate__(x.__getstate__())
y

x = nd.array([1, 2])
y = nd.zeros(5)
y.__setstate__(x.__getstate__())
y

x = nd.array([1, 2])
sorted(x.__getstate__())

x = nd.array([1, 2])
type(x.__getstate__()['handle']).__name__

import pickle
s = sym.FullyConnected(sym.var('x'), num_hidden=2, name='fc')
pickle.loads(pickle.dumps(s)).list_arguments()

import copy
s = sym.FullyConnected(sym.var('x'), num_hidden=2, name='fc')
copy.deepcopy(s).list_arguments(), copy.copy(s).list_outputs()

from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(2) as pool:
    out = list(pool.map(nd.relu, [nd.array([-1]), nd.array([1])]))
out

out = nd.zeros(2)
y = nd.relu(nd.array([-1, 1]), out=out)
y is out, out

nd.FullyConnected(nd.ones((1, 3)), nd.ones((2, 3)), nd.ones(2), 2, False, True)

nd.FullyConnected(data=nd.ones((1, 3)), weight=nd.ones((2, 3)), bias=nd.ones(2), num_hidden=2)

nd.FullyConnected(nd.ones((1, 3)), nd.ones((2, 3)), None, 2, True)

nd.dot(rhs=nd.ones((3, 2)), lhs=nd.ones((2, 3)))

nd.relu(nd.ones(2), name='r')

nd.relu(nd.ones(2), nonsense=3)

nd.relu()

nd.relu(3)

nd.relu([1, 2])

nd.relu(np.ones(2))

nd.relu(nd.ones(2), nd.ones(2))

nd.relu(data=nd.array([-1, 1]))

nd.add(nd.ones(2), [1, 2])

nd.add(nd.ones(2), None)

nd.add(1, 2)

nd.FullyConnected(nd.ones((1, 3)), nd.ones((2, 3)))

nd.FullyConnected(nd.ones((1, 3)), nd.ones((2, 4)), num_hidden=2, no_bias=True)

nd.sum(nd.ones((2, 3)), 1)

nd.sum(nd.ones((2, 3)), 1, True)

nd.sum(nd.ones((2, 3)), (0, 1))

nd.sum(nd.ones((2, 3)), axis='1')

nd.sum(nd.ones((2, 3)), axis=5)

nd.sum(nd.ones((2, 3)), axis=1.5)

nd.topk(nd.array([3, 1, 2]), 0, 2, 'value')

nd.transpose(nd.ones((2, 3)), (1, 0)).shape

nd.clip(nd.array([-3, 3]), -1, 1)

nd.clip(nd.array([-3, 3]))

nd.one_hot(nd.array([1]), 3)

nd.concat(nd.ones((1, 2)), nd.ones((1, 2)), 0)

nd.concat([nd.ones((1, 2)), nd.ones((1, 2))], dim=0)

nd.concat(*[nd.ones((1, 2)), nd.ones((1, 2))], dim=0)

nd.concat(nd.ones((1, 2)), nd.ones((1, 2)), dim=0, num_args=2)

nd.stack(nd.ones(2), nd.ones(2), axis=1)

nd.stack([nd.ones(2), nd.ones(2)])

nd.add_n(nd.ones(2), nd.ones(2), nd.ones(2))

nd.add_n(nd.ones(2))

nd.ElementWiseSum(nd.ones(2), nd.ones(2), num_args=2)
"""
