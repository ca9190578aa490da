"""Answers to the exercises of the chapter on automatic parallelism."""

from __future__ import annotations

from answers import Answers

BEHIND = Answers(
    "one_behind",
    right=[
        # One number travels, by asscalar.
        """
def one_behind(x, n):
    total, previous = 0, None
    for _ in range(n):
        y = nd.dot(x, x)
        if previous is not None:
            total += previous.asscalar()
        previous = y[0, 0]
    return total + previous.asscalar()
""",
        # The first product before the loop, whole matrices, floats.
        """
def one_behind(x, n):
    zs = [nd.dot(x, x).as_in_context(cpu())]
    total = 0.0
    for _ in range(n - 1):
        zs.append(nd.dot(x, x).as_in_context(cpu()))
        total += float(zs[-2].asnumpy()[0, 0])
    return total + float(zs[-1].asnumpy()[0, 0])
""",
        # A generator that yields one round later.
        """
def one_behind(x, n):
    def values():
        previous = nd.dot(x, x).copyto(cpu())
        for _ in range(n - 1):
            z = nd.dot(x, x).copyto(cpu())
            yield previous[0, 0].asscalar()
            previous = z
        yield previous[0, 0].asscalar()

    return sum(values())
""",
        # A sum on the CPU that is read in each round.
        """
def one_behind(x, n):
    total = nd.zeros((1,))
    queue = []
    for i in range(n):
        queue.append(nd.dot(x, x).copyto(cpu()))
        if i:
            total = total + queue.pop(0)[0, 0]
            print(end=str(total.asscalar())[:0])
    return (total + queue.pop()[0, 0]).asscalar()
""",
        # The read stands between the product and its copy.
        """
def one_behind(x, n):
    total, z = 0, None
    for k in range(n):
        y = nd.dot(x, x)
        if k > 0:
            z.wait_to_read()
            total += z.asnumpy()[0][0]
        z = nd.empty(y.shape)
        y.copyto(z)
    return total + z.asnumpy()[0][0]
""",
        # Two buffers in turns.
        """
def one_behind(x, n):
    buffers = [nd.zeros(x.shape), nd.zeros(x.shape)]
    total = 0
    for k in range(n + 1):
        if k < n:
            nd.dot(x, x).copyto(buffers[k % 2])
        if k > 0:
            total += buffers[(k - 1) % 2][0, 0].asscalar()
    return total
""",
    ],
    wrong=[
        # Reads at once.
        (
            "waits",
            """
def one_behind(x, n):
    total = 0
    for _ in range(n):
        z = nd.dot(x, x).copyto(cpu())
        total += z[0, 0].asscalar()
    return total
""",
        ),
        # Reads at once in one round only.
        (
            "waits",
            """
def one_behind(x, n):
    total, previous = 0, None
    for k in range(n):
        z = nd.dot(x, x).copyto(cpu())
        if k == 3:
            z.wait_to_read()
        if previous is not None:
            total += previous[0, 0].asscalar()
        previous = z
    return total + previous[0, 0].asscalar()
""",
        ),
        # Waits for everything in each round.
        (
            "waits",
            """
def one_behind(x, n):
    total, previous = 0, None
    for _ in range(n):
        z = nd.dot(x, x).copyto(cpu())
        nd.waitall()
        if previous is not None:
            total += previous[0, 0].asscalar()
        previous = z
    return total + previous[0, 0].asscalar()
""",
        ),
        # Waits for the product before the copy.
        (
            "waits",
            """
def one_behind(x, n):
    total, previous = 0, None
    for _ in range(n):
        y = nd.dot(x, x)
        y.wait_to_read()
        z = y.copyto(cpu())
        if previous is not None:
            total += previous[0, 0].asscalar()
        previous = z
    return total + previous[0, 0].asscalar()
""",
        ),
        # Adds arrays of two devices.
        (
            "error",
            """
def one_behind(x, n):
    total = nd.zeros((1,))
    for _ in range(n):
        total += nd.dot(x, x)[0, 0]
    return total.asscalar()
""",
        ),
        # Waits one round later, but reads at the end.
        (
            "late",
            """
def one_behind(x, n):
    zs = []
    for i in range(n):
        zs.append(nd.dot(x, x).copyto(cpu()))
        if i > 0:
            zs[i - 1].wait_to_read()
    return sum(z.asnumpy()[0, 0] for z in zs)
""",
        ),
        # Everything is read at the end.
        (
            "late",
            """
def one_behind(x, n):
    zs = [nd.dot(x, x).copyto(cpu()) for _ in range(n)]
    return sum(z[0, 0].asscalar() for z in zs)
""",
        ),
        # Nothing is read: the sum is an array.
        (
            "late",
            """
def one_behind(x, n):
    total = nd.zeros((1,))
    for _ in range(n):
        total = total + nd.dot(x, x).copyto(cpu())[0, 0]
    return total
""",
        ),
        # Two rounds behind.
        (
            "behind",
            """
def one_behind(x, n):
    total, pending = 0, []
    for _ in range(n):
        pending.append(nd.dot(x, x).copyto(cpu()))
        if len(pending) > 2:
            total += pending.pop(0)[0, 0].asscalar()
    return total + sum(z[0, 0].asscalar() for z in pending)
""",
        ),
        # One early read, the rest at the end.
        (
            "rest",
            """
def one_behind(x, n):
    zs = []
    total = 0
    for k in range(n):
        zs.append(nd.dot(x, x).copyto(cpu()))
        if k == 1:
            total += zs[0][0, 0].asscalar()
    return total + sum(z[0, 0].asscalar() for z in zs[1:])
""",
        ),
        # One buffer for all products.
        (
            "room",
            """
def one_behind(x, n):
    total, previous, y = 0, None, nd.zeros(x.shape, ctx=x.context)
    for _ in range(n):
        nd.dot(x, x, out=y)
        z = y.copyto(cpu())
        if previous is not None:
            total += previous[0, 0].asscalar()
        previous = z
    return total + previous[0, 0].asscalar()
""",
        ),
        # Computes on the CPU.
        (
            "place",
            """
def one_behind(x, n):
    x, total, previous = x.copyto(cpu()), 0, None
    for _ in range(n):
        y = nd.dot(x, x)
        if previous is not None:
            total += previous[0, 0].asscalar()
        previous = y
    return total + previous[0, 0].asscalar()
""",
        ),
        # Computes once and multiplies.
        (
            "count",
            """
def one_behind(x, n):
    return n * nd.dot(x, x).copyto(cpu())[0, 0].asscalar()
""",
        ),
        # Forgets the last value.
        (
            "values",
            """
def one_behind(x, n):
    total, previous = 0, None
    for _ in range(n):
        z = nd.dot(x, x).copyto(cpu())
        if previous is not None:
            total += previous[0, 0].asscalar()
        previous = z
    return total
""",
        ),
        ("values", "def one_behind(x, n):\n    pass"),
        ("values", "def one_behind(x, n):\n    return [nd.dot(x, x) for _ in range(n)]"),
        # The sum stays on the device.
        ("values", "def one_behind(x, n):\n    return sum(nd.dot(x, x)[0, 0] for _ in range(n))"),
    ],
)

HALVES = Answers(
    "halves_apart",
    right=[
        """
def halves_apart(x, n):
    top, bottom = x.split(num_outputs=2, axis=0)
    for _ in range(n):
        top, bottom = nd.tanh(top), nd.tanh(bottom)
    return nd.concat(top, bottom, dim=0)
""",
        # One half after the other, written into a result.
        """
def halves_apart(x, n):
    def apply(half):
        for _ in range(n):
            half = half.tanh()
        return half

    result, middle = nd.zeros(x.shape), len(x) // 2
    top, bottom = apply(x[:middle].copy()), apply(x[middle:].copy())
    result[:middle] = top
    result[middle:] = bottom
    return result
""",
        # Row by row.
        """
def halves_apart(x, n):
    rows = []
    for row in x:
        row = row.copy()
        for _ in range(n):
            row = nd.tanh(row)
        rows.append(row)
    return nd.stack(*rows, axis=0)
""",
        # In place, in arrays of its own.
        """
def halves_apart(x, n):
    halves = [half.copy() for half in x.split(num_outputs=2, axis=0)]
    for _ in range(n):
        for half in halves:
            nd.tanh(half, out=half)
    return nd.concat(*halves, dim=0)
""",
        # Row by row, in place: the rows of a half come one after the other, the halves do not.
        """
def halves_apart(x, n):
    halves = [x[: len(x) // 2].copy(), x[len(x) // 2 :].copy()]
    for half in halves:
        for row in half:
            for _ in range(n):
                nd.tanh(row, out=row)
    return nd.concat(*halves, dim=0)
""",
        # Another operator with the same values.
        """
def halves_apart(x, n):
    m = x.shape[0] // 2
    a, b = x[:m], x[m:]
    for _ in range(n):
        a = nd.Activation(a, act_type="tanh")
        b = nd.Activation(b, act_type="tanh")
    return nd.concatenate([a, b])
""",
        # Recursive, and flat.
        """
def halves_apart(x, n):
    if n == 0:
        return x
    flat = x.reshape((-1,))
    m = flat.size // 2
    y = nd.concat(nd.tanh(flat[:m]), nd.tanh(flat[m:]), dim=0).reshape(x.shape)
    return halves_apart(y, n - 1)
""",
    ],
    wrong=[
        # Halves of columns.
        (
            "columns",
            """
def halves_apart(x, n):
    middle = x.shape[1] // 2
    parts = [x[:, :middle].copy(), x[:, middle:].copy()]
    for _ in range(n):
        parts = [nd.tanh(part) for part in parts]
    return nd.concat(*parts, dim=1)
""",
        ),
        # The number of columns is odd.
        (
            "error",
            """
def halves_apart(x, n):
    left, right = x.split(num_outputs=2, axis=1)
    for _ in range(n):
        left, right = nd.tanh(left), nd.tanh(right)
    return nd.concat(left, right, dim=1)
""",
        ),
        # Column by column.
        (
            "columns",
            """
def halves_apart(x, n):
    columns = [x[:, j].copy() for j in range(x.shape[1])]
    for _ in range(n):
        columns = [nd.tanh(column) for column in columns]
    return nd.stack(*columns, axis=1)
""",
        ),
        # Two views of one copy.
        (
            "views",
            """
def halves_apart(x, n):
    y = x.copy()
    middle = x.shape[0] // 2
    for _ in range(n):
        for half in (y[:middle], y[middle:]):
            nd.tanh(half, out=half)
    return y
""",
        ),
        # Two views of one copy, one after the other.
        (
            "views",
            """
def halves_apart(x, n):
    y = x.copy()
    m = x.shape[0] // 2
    for _ in range(n):
        y[:m] = nd.tanh(y[:m])
    for _ in range(n):
        y[m:] = nd.tanh(y[m:])
    return y
""",
        ),
        (
            "whole",
            """
def halves_apart(x, n):
    for _ in range(n):
        x = nd.tanh(x)
    return x
""",
        ),
        # A part that is larger than half.
        (
            "whole",
            """
def halves_apart(x, n):
    parts = [x[:1].copy(), x[1:].copy()]
    for _ in range(n):
        parts = [nd.tanh(part) for part in parts]
    return nd.concat(*parts, dim=0)
""",
        ),
        (
            "x",
            """
def halves_apart(x, n):
    m = x.shape[0] // 2
    for _ in range(n):
        nd.tanh(x[:m], out=x[:m])
        nd.tanh(x[m:], out=x[m:])
    return x
""",
        ),
        (
            "shape",
            """
def halves_apart(x, n):
    parts = x.split(num_outputs=2, axis=0)
    for _ in range(n):
        parts = [nd.tanh(part) for part in parts]
    return parts
""",
        ),
        (
            "values",
            """
def halves_apart(x, n):
    m = x.shape[0] // 2
    top = x[:m].copy()
    for _ in range(n):
        top = nd.tanh(top)
    return nd.concat(top, x[m:].copy(), dim=0)
""",
        ),
        (
            "values",
            """
def halves_apart(x, n):
    top, bottom = x.split(num_outputs=2, axis=0)
    for _ in range(n + 1):
        top, bottom = nd.tanh(top), nd.tanh(bottom)
    return nd.concat(top, bottom, dim=0)
""",
        ),
        (
            "waits",
            """
def halves_apart(x, n):
    top, bottom = x.split(num_outputs=2, axis=0)
    for _ in range(n):
        top = nd.tanh(top)
    top.wait_to_read()
    for _ in range(n):
        bottom = nd.tanh(bottom)
    return nd.concat(top, bottom, dim=0)
""",
        ),
        # No tanh at all.
        (
            "missing",
            """
def halves_apart(x, n):
    for _ in range(n):
        x = 2 * nd.sigmoid(2 * x) - 1
    return x
""",
        ),
        # Computed by NumPy.
        (
            "waits",
            """
def halves_apart(x, n):
    top, bottom = (half.asnumpy() for half in x.split(num_outputs=2, axis=0))
    for _ in range(n):
        top, bottom = nd.tanh(nd.array(top)).asnumpy(), nd.tanh(nd.array(bottom)).asnumpy()
    return nd.concat(nd.array(top), nd.array(bottom), dim=0)
""",
        ),
        ("shape", "def halves_apart(x, n):\n    ..."),
        ("shape", "def halves_apart(x, n):\n    return x.asnumpy()"),
    ],
)

CHECKS = {"check_behind": BEHIND, "check_halves": HALVES}
