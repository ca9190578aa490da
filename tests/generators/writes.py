"""Ordinary eager programs of views, writes, states and gradients, beside the real MXNet.

A program is a list of statements as a person writes them: arrays, views of views, writes through
them, augmented assignments, gradients with `write` and `add`, in-place writes while recording,
small loops of training. After every statement the values and gradients of all arrays are compared
with MXNet's, and where a statement raises, both must raise. Our own laws need no MXNet: both
engines see the same values, and a statement that raises changes nothing.

A program ends at its first error, since MXNet writes some arrays before it raises.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

#: Not drawn, because MXNet's answer is an accident that no program relies on:
#: - a write to an array that a recorded operation has read, before backward (a wrong gradient);
#: - `v[:] = h` while recording, for a view v of a part: v gets the history, its base does not, and
#:   loses the gradient in silence (ours refuses);
#: - a history written to a reversed axis of size 1, to x[True] of nd, or by a NumPy array of bool;
#: - what MXNet refuses and NumPy takes: `...` of a 0-d array, an empty selection, NumPy arrays with
#:   more axes than the selection;
#: - `copyto` from an array with grad_req="add", whose gradient MXNet overwrites;
#: - memory that MXNet writes by accident: of x[-1, [0, 1]] = y, which is outside of x, and of
#:   x += y where y is another part of x;
#: - x[[0, 1], None], where MXNet puts the new axis first, unlike NumPy.
SHAPES = [(3,), (2, 3), (1, 3), (4,), (2, 2), (2, 1), (3, 1), (1,), (2, 3, 2)]


class Story:
    """The names of a program so far: `shapes`, and `roots`, which memory a name may share."""

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed % 2**32)
        self.face = self.pick(["nd", "np"])
        self.lines = []
        self.shapes = {}
        self.roots = {}
        self.leaves = set()
        self.count = 0

    def pick(self, values):
        return values[self.rng.randint(len(values))]

    def chance(self, share):
        return self.rng.rand() < share

    def name(self, shape, root=None):
        """A new name, or an old one again."""
        self.count += 1
        name = f"x{self.count}"
        self.shapes[name] = tuple(shape)
        self.roots[name] = name if root is None else self.roots[root]
        return name

    def any(self, shape=None, free=True, apart=None):
        """The name of an array, of this shape, that shares no memory with the array `apart`."""
        names = [n for n, s in self.shapes.items() if shape is None or s == shape]
        names = [n for n in names if apart is None or self.roots[n] != self.roots[apart]]
        if free:
            names = [n for n in names if n not in self.leaves]
        return self.pick(names) if names else None

    def number(self):
        return str(self.pick([0, 1, 2, 3, -1, 0.5, 4.0]))

    def key(self, shape):
        """A key of an array of this shape, as text."""
        while True:
            key = self._key(shape)
            try:
                if key == "False" or 0 not in self.selected(shape, key):
                    return key
            except IndexError:  # `...` moved a number to a smaller axis
                continue

    def _key(self, shape):
        items = []
        for n in shape[: self.rng.randint(len(shape) + 1)] or shape[:1]:
            i = self.rng.randint(n)
            items.append(
                self.pick(
                    [":", str(i), str(i - n), f"{i}:", f":{i + 1}", f"{i}:{i + 1}", f"0:{n}", "::2"]
                    + [f"[{i}, {n - 1}]", "::-1" if n > 1 else ":"] * self.chance(0.4)
                )
            )
        listed = any(item[0] == "[" for item in items)
        if listed:
            items = [item.replace("-", "") if item[1:].isdigit() else item for item in items]
        if self.chance(0.15):
            items.insert(self.rng.randint(len(items) + 1), "...")
        elif self.chance(0.1) and not listed:  # behind a list MXNet puts the new axis first
            items.insert(self.rng.randint(len(items) + 1), "None")
        if self.chance(0.1):
            items = [self.pick(["...", ":", "()", ", ".join(":" for _ in shape)])]
        if self.face == "np" and self.chance(0.08):
            items = [self.pick(["True", "False"])]
        return ", ".join(items)

    def selected(self, shape, key):
        """The shape of x[key]."""
        found = eval(f"a[{key}]", {"a": np.empty(shape)}).shape
        return found if found or self.face == "np" else (1,)

    def value(self, shape, x):
        """What may be written to a selection of `x`, of this shape, as text."""
        shapes = [shape, shape[-1:], (1,), (1,) * len(shape), (1, *shape)]
        if self.chance(0.1):
            shapes.append((5,))  # does not fit
        shape = self.pick(shapes)
        known = self.any(shape, free=False, apart=x)
        kind = self.rng.randint(6)
        if kind < 2 or not shape:
            return self.number()
        if kind < 4 and known:
            return self.pick([known, f"{known} * 2", f"{known} + 1"])
        if self.face == "nd" and kind == 5:
            shape = shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
        numbers = np.round(self.rng.randint(-4, 5, shape) / 2, 1).tolist()
        if kind == 4:
            return f"{self.face}.array({numbers})"
        return f"onp.array({numbers}, 'float32')" if self.face == "nd" else f"np.array({numbers})"

    # -- statements --------------------------------------------------------------------------------

    def make(self):
        shape = self.pick(SHAPES)
        numbers = np.round(self.rng.randint(-6, 7, shape) / 2, 1).tolist()
        mod, size = self.face, int(np.prod(shape))
        text = self.pick(
            [f"{mod}.array({numbers})", f"{mod}.arange({size}).reshape({shape})"]
            + [f"{mod}.zeros({shape})", f"{mod}.ones({shape})", f"{mod}.full({shape}, 2.0)"]
        )
        self.lines.append(f"{self.name(shape)} = {text}")

    def view(self):
        x = self.any(free=False)
        shape, mod = self.shapes[x], self.face
        size = int(np.prod(shape))
        key = self.key(shape).replace("False", "True")
        table = [
            (f"X[{key}]", self.selected(shape, key) if shape else None),
            (f"X[{key}]", self.selected(shape, key) if shape else None),
            ("X.reshape(-1)", (size,)), ("X.reshape((1, -1))", (1, size)), ("X.flatten()", None),
            ("X.detach()", shape), ("X.copy()", shape), ("X", shape), ("X.squeeze()", None),
            ("X.astype('float32', copy=False)", shape), ("X.astype('float32')", shape),
            ("X[:]", shape), ("X.T", shape[::-1]), (f"{mod}.expand_dims(X, axis=0)", (1, *shape)),
        ]  # fmt: skip
        if shape and mod == "nd":
            table += [
                ("X.slice_axis(axis=0, begin=0, end=None)", shape), ("nd.identity(X)", shape),
                ("X.expand_dims(0, inplace=True)", (1, *shape)), ("nd.concat(X, dim=0)", shape),
                (f"X.reshape_like(nd.zeros({size}))", (size,)), ("X.flatten(inplace=True)", None),
                (f"nd.broadcast_to(X, {shape})", shape), ("X.as_in_context(mx.cpu())", shape),
            ]  # fmt: skip
        elif shape:
            table += [
                (f"np.split(X, {shape[0]})[0]", (1, *shape[1:])), ("X.reshape_view(-1)", (size,)),
                ("np.concatenate([X])", shape), ("np.atleast_2d(X)", None),
                (f"np.array_split(X, 2, axis={len(shape) - 1})[0]", None), ("np.ravel(X)", (size,)),
                (f"np.broadcast_to(X, {shape})", shape), ("X.as_in_ctx(mx.cpu())", shape),
                ("mx.gluon.utils.split_data(X, 1)[0]", shape),
            ]  # fmt: skip
        text, found = self.pick([row for row in table if row[1] != ()])
        name = "t" if found is None else self.name(found, x)
        self.lines.append(f"{name} = {text.replace('X', x)}")
        if found is None:  # of unknown shape: it is written through at once
            last = "t += 1" if "squeeze" in text else f"t[...] = {self.number()}"
            self.lines.append(self.pick([last, "t += 1"]))

    def write(self):
        x = self.any(free=self.chance(0.7))
        if x is None:
            return
        shape = self.shapes[x]
        key = self.key(shape) if shape else self.pick(["()"])
        value = self.number() if "e" in key else self.value(self.selected(shape, key), x)
        self.lines.append(f"{x}[{key}] {self.pick(['=', '=', '=', '+=', '*='])} {value}")

    def augment(self):
        x = self.any()
        if x is None:
            return
        value = self.value(self.shapes[x], x)
        ops = ["+=", "-=", "*=", "+=", "-=", "/=", "**=", "%="]
        op = self.pick(ops)
        if op in ("/=", "**=", "%="):
            value = self.pick(["2", "4.0", "3"])
        self.lines.append(f"{x} {op} {value}")
        if op == "**=":
            self.roots[x] = x + "'"

    def out(self):
        x, mod = self.any(), self.face
        if x is None:
            return
        shape = self.shapes[x]
        other = self.any(shape, free=False, apart=x) or x
        y = self.any(shape if self.chance(0.8) else None, apart=x) or x
        add = "np.add" if mod == "np" else self.pick(["nd.elemwise_add", "nd.broadcast_add"])
        self.lines.append(
            self.pick(
                [f"{x}.copyto({y})", f"{add}({x}, {other}, out={y})", f"{mod}.exp({x}, out={y})"]
                + [f"{mod}.square({x}, out={y})"]
            )
        )

    def loop(self):
        x = self.any()
        shape = self.shapes.get(x, ())
        if len(shape) < 2:
            return
        self.lines.append(
            self.pick(
                [
                    f"for row in {x}:\n    row[:] = {self.number()}",
                    f"for row in {x}:\n    row += 1",
                    f"for i in range({shape[0]}):\n    {x}[i] = {x}[i] * 2",
                    f"for i in range({shape[0]}):\n    {x}[i] += i",
                    f"for i, row in enumerate({x}):\n    row *= i",
                    f"for i in range({shape[0]}):\n    {x}[i, 0] = i",
                    f"{x}[0], {x}[{shape[0] - 1}] = {x}[{shape[0] - 1}].copy(), {x}[0].copy()",
                ]
            )
        )

    def leaf(self):
        x = self.any(free=self.chance(0.5))
        if x is None:
            return
        req = self.pick(["", "", "'add'", "grad_req='write'", "'null'"])
        self.lines.append(f"{x}.attach_grad({req})")
        self.leaves.add(x)

    def gradient(self):
        leaves = sorted(self.leaves)
        if not leaves:
            self.leaf()
            return
        x = self.pick(leaves)
        shape, mod = self.shapes[x], self.face
        inner = [f"h = {self.pick([f'{x} * 2', f'{x} * {x}', f'{x} + 1', f'{x}[:]', f'-{x}'])}"]
        inner += self.recorded(x, shape)
        loss = self.pick(["(h * 3).sum()", "h.sum()", "(h * h).sum()", "h", "h * 2", "h[0]"])
        if "h.copyto(z)" in inner:
            inner[0] = f"h = {x} * 2"
        inner.append(f"l = {loss}" if shape or loss != "h[0]" else "l = h")
        ends = [
            "l.backward()", "l.backward()", "l.backward()", "l.backward(retain_graph=True)",
            f"keep(autograd.grad([l], [{x}])[0])", "l.backward()\nl.backward()",
            f"l.backward({mod}.ones_like(l) * 2)", "l.backward(retain_graph=True)\nl.backward()",
            f"l.backward()\n{x}.grad[:] = 0", f"l.backward()\n{x}.grad[:] *= 2",
            f"l.backward()\n{x} -= 0.5 * {x}.grad", f"l.backward()\n{x}[:] = {x} - {x}.grad",
            f"l.backward()\ng = {x}.grad\ng += 1", f"l.backward()\n{x}.attach_grad()",
            "l.backward()\nh[:] = 0", "l.detach().backward()", "h.backward()",
        ]  # fmt: skip
        block = "with autograd.record():\n" + "\n".join("    " + line for line in inner)
        self.lines.append(block)
        self.lines += self.pick(ends).split("\n")

    def recorded(self, x, shape):
        """Statements of a record scope that write in place."""
        if self.chance(0.35):
            return []
        mod, n = self.face, shape[0] if shape else 1
        key = self.key(shape) if shape else "()"
        whole = self.pick(
            [":", "...", f"0:{n}", ", ".join(":" * len(shape)), "None", f"-{n}:", "()"]
        )
        zeros = f"z = {mod}.zeros({shape})"
        const = self.number()
        choices = [
            [zeros, f"z[{whole}] = h", "h = z * 2"],
            [zeros, f"z[{whole}] = h", "h = h + z"],
            [zeros, f"z[{key}] = h[{key}]", "h = z * 2"],
            [zeros, f"for i in range({n}): z[i] = h[i]", "h = z * 2"],
            [zeros, f"z[{key}] = {const}", "h = h + z"],
            [zeros, f"z[{whole}] = h[0]", "h = h + z"],
            [zeros, "h.copyto(z)", "h = z * 2"],
            [zeros, "z += h"], [zeros, "z += 1", "h = h + z"],
            ["h += 1"], [f"h[{key}] = {const}"], [f"{x} += 1"], [f"{x}[{key}] = {const}"],
            ["h **= 2"], ["h *= 2"], ["h = h.detach()"], ["h = h * 1", "h[:] = 0"],
            [f"with autograd.pause(): {x}[:] = {x}"], [f"h = h.reshape({shape})"],
            [f"{zeros} + 1", "z *= 2", "h = h * z"], [f"{zeros} + 1", "z **= 2", "h = h * z"],
            [f"h = h[{key}]"], [f"v = h[{key}]", "v += 1"],
        ]  # fmt: skip
        return self.pick(choices)

    def train(self):
        x = self.any()
        if x is None:
            return
        step = self.pick(
            [
                f"{x} -= 0.1 * {x}.grad",
                f"{x}[:] = {x} - 0.1 * {x}.grad",
                f"{x}[:] -= 0.1 * {x}.grad",
                f"{x} = {x} - 0.1 * {x}.grad",
            ]
        )
        again = "" if "= " + x + " -" not in step or "[:]" in step else f"\n    {x}.attach_grad()"
        req = self.pick(["", "'add'"])
        self.lines.append(
            f"{x}.attach_grad({req})\nfor _ in range(2):\n    with autograd.record():\n"
            f"        l = ({x} * {x}).sum()\n    l.backward()\n    {step}{again}"
        )
        self.leaves.add(x)


def program(seed):
    """(face, statements) of a program."""
    story = Story(seed)
    story.make()
    story.make()
    steps = ["make", "view", "view", "view", "write", "write", "write", "augment", "augment"]
    steps += ["out", "loop", "leaf", "gradient", "gradient", "train"]
    while len(story.lines) < 10:
        getattr(story, story.pick(steps))()
    return story.face, story.lines


def draw(seed):
    """The program as text."""
    face, lines = program(seed)
    return ("npx.set_np()\n" if face == "np" else "") + "\n".join(lines)


def execute(library, face, lines):
    """For each statement the state behind it: {name: (shape, values, gradient)}; at the end, if it
    raised, the names of the error's classes, the message and the state."""
    kept = []
    names = {"mx": library, "onp": np, "autograd": library.autograd, "keep": kept.append}
    names.update(nd=library.nd, np=library.np, npx=library.npx)
    others = set(names)
    if face == "np":
        library.npx.set_np()

    def state():
        found = {}
        for name, x in [*names.items(), *((f"kept{i}", x) for i, x in enumerate(kept))]:
            if name not in others and hasattr(x, "asnumpy"):
                value, g = x.asnumpy(), x.grad
                g = None if g is None else g.asnumpy()
                found[name] = (str(value.dtype), value, g)
        return found

    states = []
    try:
        for line in lines:
            try:
                exec(line, names)
                states.append(state())
            except Exception as problem:
                words = [kind.__name__ for kind in type(problem).__mro__]
                try:
                    after = state()
                except Exception:  # MXNet raises the error of a computation here
                    after = None
                states.append((words, str(problem)[-300:], after))
                break
    finally:
        if face == "np":
            library.npx.reset_np()
    return states


def same(a, b):
    """Do two states hold the same names, values and gradients?"""
    if a.keys() != b.keys():
        return False
    for name, (dtype, x, g) in a.items():
        other, y, k = b[name]
        if dtype != other or x.shape != y.shape or (g is None) is not (k is None):
            return False
        pairs = [(x, y)] if g is None else [(x, y), (g, k)]
        if not all(np.allclose(u, v, 1e-4, 1e-5, equal_nan=True) for u, v in pairs):
            return False
    return True


#: What raises in MXNet -> what may raise here: NumPy's or Python's class in place of MXNet's.
CLASSES = {"MXNetError": ("ValueError", "IndexError", "TypeError")}


@lru_cache
def ask_mxnet():
    """The real MXNet, which imports this module too, and has no `oracle`."""
    from oracle import Oracle

    return Oracle("mxnet")


def check(seed):
    """AssertionError where the engines differ, an error changed a state, or MXNet has another
    answer; True if MXNet was asked."""
    from oracle import OracleDied

    import d2lmini
    from d2lmini import engine

    face, lines = program(seed)
    text = f"{face}, seed {seed}\n" + "\n".join(lines)
    with engine.use("naive"):
        serial = execute(d2lmini, face, lines)
    with engine.use("threaded", inline_below=0):
        ours = execute(d2lmini, face, lines)
    assert len(serial) == len(ours), text
    for i, (one, two) in enumerate(zip(serial, ours)):
        failed = type(two) is tuple
        if failed:
            assert one[:1] == two[:1], f"{text}\n{one[:2]} naive, {two[:2]} threaded"
            one, two = one[2], two[2]
            if "\n" not in lines[i] and i:  # one statement
                assert same(two, ours[i - 1]), f"{text}\n# line {i + 1} raised and changed a state"
        assert same(one, two), f"{text}\n# line {i + 1}: the engines differ"
    mxnet = ask_mxnet()
    if not mxnet.python:
        return False
    try:
        theirs = mxnet.ask(execute, face, lines)
    except OracleDied:  # MXNet crashes now and then
        return False
    for i, (one, two) in enumerate(zip(ours, theirs)):
        fail = f"{text}\n# line {i + 1}: {lines[i]}\nours  {one}\nMXNet {two}"
        assert type(one) is type(two), fail
        if type(one) is tuple:
            known = (two[0][0], *CLASSES.get(two[0][0], ()))
            assert any(name in known for name in one[0]), fail
        else:
            assert same(one, two), fail
    return True
