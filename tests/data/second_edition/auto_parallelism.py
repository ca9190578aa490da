"""Devices work at the same time, and copies overlap: in the manner of the book's second edition."""

import numpy as onp
from d2l import mxnet as d2l
from mxnet import np, npx

npx.set_np()
rng = onp.random.RandomState(0)
devices = d2l.try_all_gpus()
print("devices:", len(devices))


def run(x):
    return [x.dot(x) for _ in range(5)]


def copy_to_cpu(arrays):
    return [y.copyto(npx.cpu()) for y in arrays]


values = rng.normal(size=(300, 300)).astype("float32")
xs = [np.array(values, ctx=device) for device in devices]

print("-- one device after the other, then all")
for x in xs:
    run(x)  # warm-up
npx.waitall()
for x, device in zip(xs, devices):
    with d2l.Benchmark(f"devices: {device}"):
        results = run(x)
        npx.waitall()
with d2l.Benchmark("all"):
    results = [run(x) for x in xs]
    npx.waitall()
print("one value:", len({float(y.sum()) for ys in results for y in ys}))

print("-- compute, then copy; and both at once")
with d2l.Benchmark("compute"):
    y = run(xs[0])
    npx.waitall()
with d2l.Benchmark("copy"):
    y_cpu = copy_to_cpu(y)
    npx.waitall()
with d2l.Benchmark("compute and copy"):
    y = run(xs[0])
    y_cpu = copy_to_cpu(y)
    npx.waitall()
print(y_cpu[0].ctx, y_cpu[-1].shape)
print(f"{float(y_cpu[-1].std()):.4f}", onp.allclose(y_cpu[0].asnumpy(), values @ values, atol=1e-2))
