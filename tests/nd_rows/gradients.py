"""Autograd: heads and head gradients, modes, higher orders, functions written by hand."""

LINES = """
autograd.set_recording(True), autograd.set_recording(False), autograd.is_recording()
autograd.set_training(True), autograd.set_training(False), autograd.is_training()
autograd.is_recording(), autograd.is_training()
autograd.set_recording(1)
x = nd.ones(2); x.attach_grad(); x.backward()
x = nd.ones(2); x.backward()
x = nd.ones(2); autograd.backward([x])
x = nd.ones(2); x.attach_grad('nonsense')
x = nd.ones(2); x.attach_grad('null'); x.grad
x = nd.ones(2); x.attach_grad('add'); x.grad
x = nd.ones(2); x.attach_grad(grad_req='write'); x.grad
nd.ones(2).grad
x = nd.ones(2); autograd.mark_variables(x, nd.zeros(2)); x.grad
x = nd.ones(2); autograd.mark_variables([x], [nd.zeros(2)]); x.grad
x = nd.ones(2); autograd.mark_variables([x], [nd.zeros(2)], 'add'); x.grad
x = nd.ones(2); autograd.mark_variables([x], [nd.zeros(2)], ['add']); x.grad
x = nd.ones(2); autograd.mark_variables([x], [nd.zeros(3)])
x = nd.ones(2); autograd.mark_variables([x], [nd.zeros(2)], 'nonsense')
x = nd.ones(2); autograd.mark_variables((x,), (nd.zeros(2),)); x.grad
x = nd.ones(2); autograd.mark_variables([x, x], [nd.zeros(2), nd.ones(2)]); x.grad
autograd.mark_variables([], [])
autograd.backward([])
autograd.grad([], [])
autograd.get_symbol(nd.ones(2))
autograd.record(1).__enter__()
sorted(n for n in dir(autograd) if n in 'Function backward get_symbol grad is_recording is_training mark_variables pause predict_mode record set_recording set_training train_mode'.split())
"""

PROGRAMS = """
from mxnet.autograd import *
x = nd.ones(2)
x.attach_grad()
with record():
    y = x * 2
backward([y])
x.grad

x = nd.ones((2, 3))
x.attach_grad()
with autograd.record():
    y = x * 2
y.backward(nd.array([[1, 2, 3], [4, 5, 6]]))
x.grad

x = nd.ones((2, 3))
x.attach_grad()
with autograd.record():
    y = x * 2
y.backward(nd.ones((3, 2)))
x.grad

x = nd.ones((2, 3))
x.attach_grad()
with autograd.record():
    y = x * 2
y.backward(nd.ones((1, 3)))
x.grad

x = nd.ones((2, 3))
x.attach_grad()
with autograd.record():
    y = x * 2
y.backward(nd.ones((2, 3), dtype='float64'))
x.grad

x = nd.ones((2, 3))
x.attach_grad()
with autograd.record():
    y = x * 2
y.backward(nd.ones((2, 3), dtype='int32'))
x.grad

x = nd.ones((2, 3))
x.attach_grad()
with autograd.record():
    y = x * 2
y.backward(np.ones((2, 3)))
x.grad

x = nd.ones((2, 3))
x.attach_grad()
with autograd.record():
    y = x * 2
y.backward(3)
x.grad

x = nd.ones((2, 3))
x.attach_grad()
with autograd.record():
    y = x * 2
y.backward(out_grad=nd.ones((2, 3)) * 4, retain_graph=True, train_mode=False)
x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    a, b = x * 2, x * 3
autograd.backward([a, b])
x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    a, b = x * 2, x * 3
autograd.backward([a, b], [None, nd.array([10, 20])])
x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    a, b = x * 2, x * 3
autograd.backward([a, b], [nd.array([10, 20])])
x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    a, b = x * 2, x * 3
autograd.backward([a, b], [nd.ones(2), nd.ones(2), nd.ones(2)])
x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    a, b = x * 2, x * 3
autograd.backward((a, b), (nd.ones(2), None))
x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    a, b = x * 2, x * 3
autograd.backward([a, b], nd.ones(2))
x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    a = x * 2
autograd.backward(a, nd.array([5, 6]))
x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    a = x * 2
autograd.backward(a, [nd.array([5, 6])])
x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    a = x * 2
autograd.backward([a], nd.array([5, 6]))
x.grad

x = nd.ones((2, 4))
x.attach_grad()
with autograd.record():
    a, b = nd.split(x, num_outputs=2, axis=1)
a.backward(nd.array([[1, 2], [3, 4]]))
x.grad

x = nd.ones((2, 4))
x.attach_grad()
with autograd.record():
    a, b = nd.split(x, num_outputs=2, axis=1)
autograd.backward([a, b], [None, nd.array([[1, 2], [3, 4]])])
x.grad

x = nd.ones((2, 4))
x.attach_grad()
with autograd.record():
    a, b = nd.split(x, num_outputs=2, axis=1)
b.backward(nd.ones((2, 4)))
x.grad

x = nd.array([[3, 1, 2]])
x.attach_grad()
with autograd.record():
    value, index = nd.topk(x, k=2, ret_typ='both')
value.backward()
x.grad, index

x = nd.array([[3, 1, 2]])
x.attach_grad()
with autograd.record():
    value, index = nd.topk(x, k=2, ret_typ='both')
autograd.backward([value, index])
x.grad

x = nd.array([[3, 1, 2]])
x.attach_grad()
with autograd.record():
    index = nd.topk(x, k=2)
index.backward()
x.grad

x = nd.array([[3, 1, 2]])
x.attach_grad()
with autograd.record():
    value, index = nd.topk(x, k=2, ret_typ='both')
index.backward()
x.grad

x = nd.array([[3, 1, 2]])
x.attach_grad()
with autograd.record():
    y = nd.topk(x, k=2, ret_typ='mask')
y.backward()
x.grad

x = nd.array([3, 1, 2])
x.attach_grad()
with autograd.record():
    y = nd.argsort(x)
y.backward()
x.grad

x = nd.array([3, 1, 2])
x.attach_grad()
with autograd.record():
    y = nd.sort(x)
y.backward(nd.array([1, 2, 3]))
x.grad

x = nd.array([3, 1, 2])
x.attach_grad()
with autograd.record():
    y = nd.argmax(x, axis=0)
y.backward()
x.grad

x = nd.array([[1, 2], [3, 5]])
x.attach_grad()
gamma, beta, mean, var = nd.ones(2), nd.zeros(2), nd.zeros(2), nd.ones(2)
gamma.attach_grad()
beta.attach_grad()
with autograd.record():
    y = nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False)
y.backward(nd.array([[1, 2], [3, 4]]))
x.grad, gamma.grad, beta.grad

x = nd.array([[1, 2], [3, 5]])
x.attach_grad()
gamma, beta, mean, var = nd.ones(2), nd.zeros(2), nd.zeros(2), nd.ones(2)
with autograd.record():
    y, m, v = nd.BatchNorm(x, gamma, beta, mean, var, output_mean_var=True)
y.backward(nd.array([[1, 2], [3, 4]]))
x.grad, m, y

x = nd.array([[1, 2], [3, 5]])
x.attach_grad()
gamma, beta, mean, var = nd.ones(2), nd.zeros(2), nd.zeros(2), nd.ones(2)
with autograd.record():
    y, m, v = nd.BatchNorm(x, gamma, beta, mean, var, output_mean_var=True)
autograd.backward([y, m, v])
x.grad

x = nd.array([[1, 2], [3, 5]])
x.attach_grad()
with autograd.record():
    y, m, s = nd.LayerNorm(x, nd.ones(2), nd.zeros(2), output_mean_var=True)
y.backward(nd.array([[1, 2], [3, 4]]))
x.grad, m

x = nd.array([1, 2, 3], dtype='int32')
x.attach_grad()
with autograd.record():
    y = x * 3
y.backward()
x.grad

x = nd.array([1, 2, 3], dtype='int32')
x.attach_grad()
with autograd.record():
    y = x * x
y.backward()
x.grad

x = nd.array([1, 2, 3], dtype='float64')
x.attach_grad()
with autograd.record():
    y = x.astype('int32')
y.backward()
x.grad

x = nd.array([1.5, 2, 3])
x.attach_grad()
with autograd.record():
    y = x.astype('float16') * 2
y.backward()
x.grad

x = nd.array([1.5, 2, 3])
x.attach_grad()
with autograd.record():
    y = nd.one_hot(x, 4)
y.backward()
x.grad

x = nd.array([1.5, 2, 3])
x.attach_grad()
with autograd.record():
    y = x.shape_array()
y.backward()
x.grad

x = nd.array([1, 2, 3])
x.attach_grad()
with autograd.record():
    y = x > 2
y.backward()
x.grad

x = nd.array([1, 2, 3])
y = nd.array([3, 2, 1])
x.attach_grad()
y.attach_grad()
with autograd.record():
    z = (x == y) * x
z.backward()
x.grad, y.grad

x = nd.array([1, 2, 3])
y = nd.array([3, 2, 1])
x.attach_grad()
y.attach_grad()
with autograd.record():
    z = nd.logical_and(x, y) + nd.logical_not(x) + (x != 2)
z.backward()
x.grad, y.grad

x = nd.array([1.4, -2.5, 3])
x.attach_grad()
with autograd.record():
    z = nd.round(x) + nd.floor(x) + nd.ceil(x) + nd.sign(x) + nd.rint(x) + nd.fix(x) + nd.trunc(x)
z.backward()
x.grad

x = nd.array([[1, 2], [3, 4]])
label = nd.array([0, 1])
x.attach_grad()
label.attach_grad()
with autograd.record():
    y = nd.SoftmaxOutput(x, label)
y.backward()
x.grad, label.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.SoftmaxOutput(x, nd.array([0, 1]))
y.backward(nd.ones((2, 2)) * 100)
x.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.SoftmaxOutput(x, nd.array([0, 1]), out_grad=True)
y.backward(nd.ones((2, 2)) * 100)
x.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.SoftmaxOutput(x, nd.array([0, -1]), use_ignore=True, ignore_label=-1, normalization='valid', grad_scale=2)
y.backward()
x.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.SoftmaxOutput(x, nd.array([0, 1]), smooth_alpha=0.1, normalization='batch')
y.backward()
x.grad

x = nd.array([[1, 2], [3, 4]])
label = nd.array([[0, 2], [4, 4]])
x.attach_grad()
label.attach_grad()
with autograd.record():
    y = nd.LinearRegressionOutput(x, label)
y.backward()
y, x.grad, label.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.LinearRegressionOutput(x, nd.array([[0, 2], [4, 4]]), grad_scale=3)
y.backward(nd.ones((2, 2)) * 100)
y, x.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.LogisticRegressionOutput(x, nd.array([[0, 1], [0, 1]]))
y.backward()
y, x.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.MAERegressionOutput(x, nd.array([[0, 2], [4, 4]]))
y.backward()
y, x.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.MakeLoss(x * 2)
y.backward()
y, x.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.MakeLoss(x * 2, grad_scale=3)
y.backward(nd.ones((2, 2)) * 100)
x.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.MakeLoss(x * 2, normalization='batch')
y.backward()
x.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.make_loss(x * 2) * 5
y.backward()
x.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.MakeLoss(x * 2) * 5
y.backward()
x.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.BlockGrad(x * 2) + x
y.backward()
x.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.BlockGrad(x * 2)
y.backward()
x.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = x.detach() * 2
y.backward()

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.softmax_cross_entropy(x, nd.array([0, 1]))
y.backward()
y, x.grad

x = nd.array([[1, 2], [3, 4]])
x.attach_grad()
with autograd.record():
    y = nd.smooth_l1(x - 2, scalar=1)
y.backward()
y, x.grad

x, z = nd.ones(2), nd.ones(2)
x.attach_grad()
z.attach_grad()
with autograd.record():
    y = x * 2
autograd.grad(y, [z])

x, z = nd.ones(2), nd.ones(2)
x.attach_grad()
z.attach_grad()
with autograd.record():
    y = x * 2
autograd.grad(y, [x, z])

x, z = nd.ones(2), nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x * 2 + z
autograd.grad(y, [x, z])

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x * 2
autograd.grad(y, x)

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x * 2
autograd.grad([y], [x], head_grads=[nd.array([3, 4])])

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x * 2
autograd.grad(y, x, head_grads=nd.array([3, 4]))

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x * 2
    z = y * y
autograd.grad(z, [x, y])

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x * 2
autograd.grad(y, x), x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x * x
autograd.grad(y, x)
autograd.grad(y, x)

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x * x
autograd.grad(y, x, retain_graph=True)
autograd.grad(y, x)

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x * x
y.backward(retain_graph=True)
y.backward()
x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x * x
y.backward()
y.backward()

x = nd.ones(2)
x.attach_grad('add')
for _ in range(3):
    with autograd.record():
        y = x * x
    y.backward()
x.grad

x = nd.ones(2)
x.attach_grad('add')
with autograd.record():
    y = x * x + x * 3
y.backward(retain_graph=True)
y.backward()
x.grad

x, z = nd.ones(2), nd.ones(2)
x.attach_grad()
z.attach_grad('null')
with autograd.record():
    y = x * z
y.backward()
x.grad, z.grad

z = nd.ones(2)
z.attach_grad('null')
with autograd.record():
    y = z * 3
y.backward()

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x * 3
x.attach_grad()
y.backward()
x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x * 3
    y.attach_grad()
    z = y * 2
z.backward()
x.grad, y.grad

x = nd.ones(2)
g = nd.zeros(2)
autograd.mark_variables([x], [g], 'write')
with autograd.record():
    y = x * 3
y.backward()
g

x = nd.ones(2)
g = nd.ones(2)
autograd.mark_variables([x], [g], 'add')
with autograd.record():
    y = x * 3
y.backward()
g

x, y = nd.ones(2), nd.ones(2)
autograd.mark_variables([x, y], [nd.zeros(2), nd.zeros(2)], ['write', 'null'])
with autograd.record():
    z = x * y
z.backward()
x.grad, y.grad

x = nd.ones(2)
autograd.mark_variables([x], [nd.zeros(2, dtype='float64')])
with autograd.record():
    y = x * 3
y.backward()
x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    with autograd.pause():
        c = x * 10
    y = c * x
y.backward()
x.grad

x = nd.ones((4, 4))
x.attach_grad()
with autograd.record(train_mode=False):
    y = nd.Dropout(x, 0.5)
y.backward()
y, x.grad

x = nd.ones(100)
x.attach_grad()
with autograd.record():
    y = nd.Dropout(x, 0.5)
y.backward()
(x.grad.asnumpy() == y.asnumpy()).all()

with autograd.record():
    a = autograd.is_recording(), autograd.is_training()
    with autograd.predict_mode():
        b = autograd.is_recording(), autograd.is_training()
    with autograd.pause(train_mode=True):
        c = autograd.is_recording(), autograd.is_training()
        with autograd.record(False):
            d = autograd.is_recording(), autograd.is_training()
with autograd.train_mode():
    e = autograd.is_recording(), autograd.is_training()
a, b, c, d, e

scope = autograd.record()
with scope:
    a = autograd.is_recording()
with scope:
    b = autograd.is_recording()
a, b, autograd.is_recording()

before = autograd.set_recording(True)
x = nd.ones(2)
x.attach_grad()
y = x * 4
after = autograd.set_recording(False)
y.backward()
before, after, x.grad

x = nd.array([-1.0, 0.5, 2.0])
x.attach_grad()
with autograd.record():
    y = nd.relu(x)
    dx = autograd.grad(y, x, create_graph=True, retain_graph=True)[0]
dx.backward()
dx, x.grad

x = nd.array([-1.0, 0.5, 2.0])
x.attach_grad()
with autograd.record():
    y = x * x * x
    dx = autograd.grad(y, x, create_graph=True, retain_graph=True)[0]
    ddx = autograd.grad(dx, x, create_graph=True, retain_graph=True)[0]
ddx.backward()
dx, ddx, x.grad

x = nd.array([-1.0, 0.5, 2.0])
x.attach_grad()
with autograd.record():
    y = x * 2
    dx = autograd.grad(y, x, create_graph=True, retain_graph=True)[0]
dx.backward()
x.grad

x = nd.array([-1.0, 0.5, 2.0])
x.attach_grad()
with autograd.record():
    y = x + 2
    dx = autograd.grad(y, x, create_graph=True, retain_graph=True)[0]
autograd.grad(dx, x)

x = nd.array([-1.0, 0.5, 2.0])
x.attach_grad()
with autograd.record():
    y = x.sum()
    dx = autograd.grad(y, x, create_graph=True, retain_graph=True)[0]
dx.backward()
x.grad

x = nd.array([[1.0, 2.0], [3.0, 4.0]])
w = nd.array([[1.0, 2.0], [3.0, 4.0]])
x.attach_grad()
w.attach_grad()
with autograd.record():
    y = nd.FullyConnected(x, w, num_hidden=2, no_bias=True)
    dx = autograd.grad(y, x, create_graph=True, retain_graph=True)[0]
dx.backward()
dx, x.grad, w.grad

x = nd.array([[1.0, 2.0], [3.0, 4.0]])
w = nd.array([[1.0, 2.0], [3.0, 4.0]])
x.attach_grad()
w.attach_grad()
with autograd.record():
    y = nd.dot(x, w)
    dx = autograd.grad(y, x, create_graph=True, retain_graph=True)[0]
dx.backward()
dx, x.grad, w.grad

x = nd.array([1.0, 2.0])
x.attach_grad()
with autograd.record():
    y = x * x
    dx = autograd.grad(y, x, head_grads=x, create_graph=True, retain_graph=True)[0]
dx.backward()
dx, x.grad

class F(autograd.Function):
    def forward(self, a, b):
        self.save_for_backward(a, b)
        return a * b, a + b
    def backward(self, g, h):
        a, b = self.saved_tensors
        return g * b + h, g * a + h
a, b = nd.array([1, 2]), nd.array([3, 4])
a.attach_grad()
b.attach_grad()
with autograd.record():
    y, z = F()(a, b)
autograd.backward([y, z], [nd.array([1, 1]), nd.array([10, 10])])
y, z, a.grad, b.grad

class F(autograd.Function):
    def forward(self, a, b):
        return a * b, a + b
    def backward(self, g, h):
        return g, h
a, b = nd.array([1, 2]), nd.array([3, 4])
a.attach_grad()
b.attach_grad()
with autograd.record():
    y, z = F()(a, b)
y.backward()
a.grad, b.grad

class F(autograd.Function):
    def forward(self, a, b):
        return a * b
    def backward(self, g):
        return g
a, b = nd.array([1, 2]), nd.array([3, 4])
a.attach_grad()
b.attach_grad()
with autograd.record():
    y = F()(a, b)
y.backward()
a.grad, b.grad

class F(autograd.Function):
    def forward(self, a):
        return a * 2
    def backward(self, g):
        return g * 5
a = nd.array([1, 2])
a.attach_grad()
with autograd.record():
    y = F()(a * 3)
y.backward()
a.grad

class F(autograd.Function):
    def forward(self, a):
        return [a * 2]
    def backward(self, g):
        return [g * 5]
a = nd.array([1, 2])
a.attach_grad()
with autograd.record():
    y = F()(a)
type(y).__name__

class F(autograd.Function):
    def forward(self, a):
        return (a * 2, a)
    def backward(self, g, h):
        return g * 5 + h
a = nd.array([1, 2])
with autograd.record():
    y = F()(a)
type(y).__name__

class F(autograd.Function):
    def __init__(self, k):
        super().__init__()
        self.k = k
    def forward(self, a):
        return a * self.k
    def backward(self, g):
        return g * self.k
a = nd.array([1, 2])
a.attach_grad()
with autograd.record():
    y = F(3)(a) + F(4)(a)
y.backward()
y, a.grad

class F(autograd.Function):
    def forward(self, a):
        return a.asnumpy() * 2
    def backward(self, g):
        return g
F()(nd.ones(2))

class F(autograd.Function):
    def forward(self, a):
        self.rec = autograd.is_recording()
        return a * 2
    def backward(self, g):
        return g
f = F()
a = nd.ones(2)
a.attach_grad()
with autograd.record():
    f(a)
f.rec

class F(autograd.Function):
    def forward(self, a, b):
        self.save_for_backward(a)
        return a * b
    def backward(self, g):
        return g, g
a, b = nd.array([1, 2]), nd.array([3, 4])
a.attach_grad()
with autograd.record():
    y = F()(a, b)
y.backward()
a.grad, b.grad

class F(autograd.Function):
    def forward(self, a):
        return a * 2
    def backward(self, g):
        return nd.ones(5)
a = nd.array([1, 2])
a.attach_grad()
with autograd.record():
    y = F()(a)
y.backward()
a.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = nd.exp(x) * 2
s = autograd.get_symbol(y)
len(s.list_arguments())

x = nd.ones(2)
with autograd.record():
    y = nd.exp(x) * 2
autograd.get_symbol(y)

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    x += 1

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x * 2
    y[:] = 3

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x * 2
    y[0] = 3

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    c = nd.zeros(2)
    c[:] = 3
    y = x * c
y.backward()
x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    c = nd.zeros(2)
    nd.exp(x, out=c)

x = nd.ones(3)
x.attach_grad()
with autograd.record():
    y = x[1:].sum() + x[0]
y.backward()
x.grad

x = nd.ones(3)
x.attach_grad()
with autograd.record():
    y = x[[0, 0, 2]] * nd.array([1, 2, 3])
y.backward()
x.grad

x = nd.ones((2, 3))
x.attach_grad()
with autograd.record():
    y = x.reshape((3, 2)).T[0]
y.backward()
x.grad

x = nd.ones((2, 3))
x.attach_grad()
x._fresh_grad, x._fresh_grad
with autograd.record():
    y = x * 2
y.backward()
bool(x._fresh_grad)

x = nd.ones(2)
x.attach_grad()
x.grad[:] = 7
with autograd.record():
    y = x * 0
x.grad

x = nd.ones(2)
x.attach_grad()
y = x.copy()
y.grad

x = nd.ones(2)
x.attach_grad()
y = x.detach()
y.grad

x = nd.ones(2)
x.attach_grad()
g = x.grad
x.attach_grad()
g is x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = nd.identity(x)
    y.attach_grad()
    z = y * 2
z.backward()
y.grad, x.grad

x = nd.array([0.3, 0.5])
x.attach_grad()
with autograd.record():
    y = x.copyto(mx.cpu(1)) * 2
y.backward()
x.grad

x = nd.array([0.3, 0.5])
x.attach_grad()
with autograd.record():
    y = nd.where(x > 0.4, x * 2, x * 3)
y.backward()
x.grad

x = nd.array([2, 3])
x.attach_grad()
with autograd.record():
    y = nd.maximum(x, 2) + nd.minimum(x, 3)
y.backward()
x.grad

x = nd.array([2, 3])
z = nd.array([2, 3])
x.attach_grad()
z.attach_grad()
with autograd.record():
    y = nd.maximum(x, z) + nd.minimum(x, z)
y.backward()
x.grad, z.grad

x = nd.array([2, 3])
x.attach_grad()
with autograd.record():
    y = x.max() + x.min()
y.backward()
x.grad

x = nd.array([3, 3])
x.attach_grad()
with autograd.record():
    y = x.max()
y.backward()
x.grad

x = nd.array([0, -1, 1])
x.attach_grad()
with autograd.record():
    y = nd.abs(x) + nd.relu(x) + nd.clip(x, -1, 1)
y.backward()
x.grad

x = nd.array([2, 0])
x.attach_grad()
with autograd.record():
    y = nd.norm(x)
y.backward()
x.grad

x = nd.array([2, 0, 3])
x.attach_grad()
with autograd.record():
    y = nd.prod(x)
y.backward()
x.grad

x = nd.array([7, -7])
x.attach_grad()
with autograd.record():
    y = x % 3
y.backward()
y, x.grad

x = nd.array([7, -7])
x.attach_grad()
with autograd.record():
    y = x
y.backward()
x.grad

x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x.asnumpy().sum()
y

import gc
x = nd.ones(2)
x.attach_grad()
with autograd.record():
    y = x * 2
    z = y * y
del y
gc.collect()
z.backward()
x.grad
"""
SECOND = "abs relu clip radians degrees arcsinh sign round floor ceil rint fix trunc sigmoid tanh exp log sqrt rsqrt cbrt rcbrt square sin cos tan arcsin arccos arctan sinh cosh arccosh arctanh log10 log2 log1p expm1 reciprocal negative identity BlockGrad zeros_like ones_like erf erfinv gamma gammaln softsign hard_sigmoid softmax log_softmax softmin logical_not sum mean max min prod norm flip reshape transpose tile repeat expand_dims squeeze flatten sort cast Dropout LeakyReLU Activation smooth_l1 make_loss MakeLoss".split()
OPTIONS = {"clip": "a_min=0.2, a_max=0.5", "tile": "reps=(2,)", "repeat": "repeats=2", "expand_dims": "axis=0", "reshape": "shape=(3, 1)", "flip": "axis=0", "cast": "dtype='float64'", "Dropout": "p=0.5", "LeakyReLU": "slope=0.1", "Activation": "act_type='relu'", "smooth_l1": "scalar=2"}
STARTS = {"arccosh": "1.3, 1.5, 2.4"}


def second(name):
    """The first gradient, and that of the gradient, weighted by a variable."""
    call = ", ".join(["x", OPTIONS.get(name, "")]).strip(", ")
    return f"""
x = nd.array([{STARTS.get(name, "0.3, 0.45, 0.6")}])
w = nd.array([1.0, 2.0, 3.0])
x.attach_grad()
w.attach_grad()
with autograd.record({name != "Dropout"}):
    y = nd.{name}({call})
    dx = autograd.grad(y, x, create_graph=True, retain_graph=True)[0]
    z = dx * w
z.backward()
dx, x.grad, w.grad
"""


def twice(name):
    """The gradient of the gradient alone: zeros, or an error, where it does not depend on x."""
    return second(name).partition("    z =")[0] + f"autograd.grad(dx, [x])  # of {name}\n"


PROGRAMS += "\n\n".join([*map(second, SECOND), *map(twice, SECOND)])
PROGRAMS += """

a = nd.array([1.0, 2.0])
b = nd.array([3.0, 4.0])
a.attach_grad()
b.attach_grad()
with autograd.record():
    y = nd.relu(a) * nd.relu(b)
    da = autograd.grad(y, a, create_graph=True, retain_graph=True)[0]
autograd.grad(da, [a, b])

a = nd.array([1.0, 2.0])
b = nd.array([3.0, 4.0])
a.attach_grad()
b.attach_grad()
with autograd.record():
    y = a * b
    da = autograd.grad(y, a, create_graph=True, retain_graph=True)[0]
autograd.grad(da, [a, b])

a = nd.array([1.0, 2.0])
b = nd.array([3.0, 4.0])
a.attach_grad()
b.attach_grad()
with autograd.record():
    y = a * b
    da = autograd.grad(y, a, create_graph=True, retain_graph=True)[0]
autograd.grad(da, [b])

a = nd.array([1.0, 2.0])
b = nd.array([3.0, 4.0])
a.attach_grad()
b.attach_grad()
with autograd.record():
    y = a * b
    da = autograd.grad(y, a, create_graph=True, retain_graph=True)[0]
    l = (da * da).sum() + y.sum()
l.backward()
a.grad, b.grad

a = nd.array([-1.0, 2.0])
a.attach_grad()
with autograd.record():
    y = nd.abs(a) + nd.clip(a, -1, 1) + nd.relu(a)
    da = autograd.grad(y, a, create_graph=True, retain_graph=True)[0]
da.backward()
da, a.grad

a = nd.array([-1.0, 2.0])
a.attach_grad()
with autograd.record():
    y = nd.sin(a)
    da = autograd.grad(y, a, create_graph=True, retain_graph=True)[0]
da.backward(retain_graph=True)
first = a.grad.copy()
da.backward()
first, a.grad

a = nd.array([-1.0, 2.0])
a.attach_grad('add')
with autograd.record():
    y = nd.sin(a)
    da = autograd.grad(y, a, create_graph=True, retain_graph=True)[0]
y.backward(retain_graph=True)
da.backward()
a.grad

a = nd.array([-1.0, 2.0])
a.attach_grad()
with autograd.record():
    y = nd.sin(a)
    da = autograd.grad(y, a, head_grads=nd.array([2.0, 3.0]), create_graph=True, retain_graph=True)[0]
da.backward(nd.array([5.0, 7.0]))
a.grad

a = nd.array([-1.0, 2.0])
a.attach_grad()
with autograd.record():
    y = nd.sin(a)
da = autograd.grad(y, a, create_graph=True)[0]
da.backward()

a = nd.array([-1.0, 2.0])
a.attach_grad()
with autograd.record():
    y = nd.sin(a)
    da = autograd.grad(y, a, create_graph=True, retain_graph=False)[0]
da.backward()
"""
