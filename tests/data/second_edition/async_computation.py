"""Who waits, and when: a program in the manner of the book's second edition."""

import numpy as onp
from d2l import mxnet as d2l
from mxnet import np, npx

npx.set_np()
rng = onp.random.RandomState(0)
device = d2l.try_gpu()
values = rng.normal(size=(200, 200)).astype("float32")

print("-- ten products: NumPy, issued, finished")
with d2l.Benchmark("numpy"):
    for _ in range(10):
        b = onp.dot(values, values)
a = np.array(values, ctx=device)
with d2l.Benchmark("mxnet.np, issued"):
    for _ in range(10):
        c = np.dot(a, a)
with d2l.Benchmark("mxnet.np, finished"):
    npx.waitall()
print("the same product:", onp.allclose(c.asnumpy(), b, atol=1e-3))

print("-- a graph of four operations")
x = np.ones((1, 2), ctx=device)
y = np.ones((1, 2), ctx=device)
z = x * y + 2
print(z)

print("-- what waits")
with d2l.Benchmark("waitall"):
    b = np.dot(a, a)
    npx.waitall()
with d2l.Benchmark("wait_to_read"):
    b = np.dot(a, a)
    b.wait_to_read()
with d2l.Benchmark("asnumpy"):
    b = np.dot(a, a)
    print(b.asnumpy().shape)
with d2l.Benchmark("item"):
    b = np.dot(a, a)
    print(f"{b.mean().item():.4f}")
with d2l.Benchmark("float"):
    print(f"{float(np.dot(a, a).max()):.2f}")

print("-- many small steps")
with d2l.Benchmark("synchronous"):
    for _ in range(200):
        y = x + 1
        y.wait_to_read()
with d2l.Benchmark("asynchronous"):
    for _ in range(200):
        y = x + 1
    npx.waitall()
print(y, y.dtype)
