"""For "Split anything": collectives, a net that trains in any split, pipelines, and two checks."""

from __future__ import annotations

import inspect
import itertools
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from d2lmini import Context, autograd, d2l, nd, storage, virtual_gpus
from d2lmini.gluon.utils import split_and_load
from d2lmini.ndarray import NDArray
from labs.grading import CheckFailed, CheckPassed

# -- collectives: a list with an array on each device becomes such a list --------------------------


def own_shards(wholes: Sequence[NDArray]) -> list[NDArray]:
    """Shard i of the i-th array, as a view."""
    return [_cut(whole, len(wholes))[i] for i, whole in enumerate(wholes)]


def reduce_scatter(parts: Sequence[NDArray]) -> list[NDArray]:
    """Shard i of the sum of all parts, on the device of part i."""
    rows = [_cut(part, len(parts)) for part in parts]
    return [
        nd.add_n(*[row[i].as_in_context(part.context) for row in rows])
        for i, part in enumerate(parts)
    ]


def all_gather(shards: Sequence[NDArray]) -> list[NDArray]:
    """All shards, one after the other, on the device of each shard."""
    return [
        nd.concat(*[other.as_in_context(shard.context) for other in shards], dim=0)
        for shard in shards
    ]


def all_reduce(parts: Sequence[NDArray]) -> list[NDArray]:
    """The sum of all parts, on the device of each part."""
    return all_gather(reduce_scatter(parts))


def _cut(x: NDArray, k: int) -> list[NDArray]:
    """The k shards of an array along its first axis, as views."""
    if len(x) % k:
        raise ValueError(f"{x.shape} has no {k} equal shards along its first axis: pad the array")
    n = len(x) // k
    return [x[i * n : (i + 1) * n] for i in range(k)]


# -- a net and its training ------------------------------------------------------------------------


def draw_weights(sizes: Sequence[int], seed: int = 1) -> list[np.ndarray]:
    """The matrices (in, out) of a net of dense layers."""
    draw = np.random.default_rng(seed)
    shapes = itertools.pairwise(sizes)
    return [(draw.normal(size=s) * (2 / s[0]) ** 0.5).astype("float32") for s in shapes]


def draw_batches(count: int, rows: int = 64, width: int = 64, seed: int = 2) -> list[np.ndarray]:
    """Batches of random examples."""
    draw = np.random.default_rng(seed)
    return [draw.normal(size=(rows, width)).astype("float32") for _ in range(count)]


def states_for(arrays: Sequence[NDArray]) -> list[tuple[NDArray, NDArray]]:
    """Adam's two states for each array: the running means of gradient and of its square."""
    return [(nd.zeros_like(x), nd.zeros_like(x)) for x in arrays]


def adam(weights: Sequence, gradients: Sequence, states: Sequence) -> None:
    """Update each array, where it lies. With this epsilon a wrong factor of a gradient matters."""
    for w, g, (mean, var) in zip(weights, gradients, states):
        nd.adam_update(w, g, mean, var, lr=0.01, epsilon=1e-3, out=w)


class Layer:
    """A dense layer on several devices: `weights` has an array on each device, as `gradients`."""

    weights: list[NDArray]
    gradients: list[NDArray]

    def gather(self) -> list[NDArray]:
        """The whole matrix, on each device."""
        return self.weights

    def collect(self, parts: list[NDArray]) -> None:
        """Keep the gradient; part i comes from the examples of device i."""
        self.gradients = parts


def step(net, X, devices):
    """A step on a batch; each device computes with its rows."""
    hs = [split_and_load(nd.array(X), devices)]
    for layer in net:
        zs = [nd.dot(h, W) for h, W in zip(hs[-1], layer.gather())]
        hs.append(zs if layer is net[-1] else [nd.relu(z) for z in zs])
    ds = [(z - X_i) / len(X) for z, X_i in zip(hs.pop(), hs[0])]
    for layer in reversed(net):
        h = hs.pop()
        layer.collect([nd.dot(h_i, d, transpose_a=True) for h_i, d in zip(h, ds)])
        if layer is not net[0]:
            Ws = layer.gather()
            ds = [nd.dot(d, W, transpose_b=True) * (h_i > 0) for d, W, h_i in zip(ds, Ws, h)]
    for layer in net:
        layer.update()


class Trained(NamedTuple):
    """weights  of each layer: the matrix as each device has it
    sent     bytes between devices in the last step
    kept     bytes that each device keeps after it"""

    weights: list[list[np.ndarray]]
    sent: int
    kept: list[int]


def train(make: Callable[..., Any], devices: list[Context], batches: list, values: list) -> Trained:
    """A step on each batch with the layers that `make(value, devices)` returns."""
    nd.waitall()
    before = [storage.stats(ctx).live for ctx in devices]
    net = [make(v, devices) for v in values]
    for X in batches:
        with d2l.traffic() as links:
            step(net, X, devices)
    kept = [storage.stats(ctx).live - b for ctx, b in zip(devices, before)]
    return Trained([[W.asnumpy() for W in l.gather()] for l in net], sent_between(links), kept)


def sent_between(links: Any) -> int:
    """The bytes between devices, without those from and to the CPU."""
    return sum(n for way, n in links.between.items() if "cpu" not in way)


def alone(values: list, batches: list, ctx: Context, parts: int = 1) -> list[np.ndarray]:
    """The weights after a step on each batch on one device, with autograd; the gradients of the
    parts of a batch are added up."""
    weights = [nd.array(v, ctx=ctx) for v in values]
    states = states_for(weights)
    for W in weights:
        W.attach_grad("add")
    for X in batches:
        for W in weights:
            W.grad[:] = 0
        for X_i in split_and_load(nd.array(X), [ctx] * parts):
            with autograd.record():
                h = X_i
                for W in weights[:-1]:
                    h = nd.relu(nd.dot(h, W))
                l = ((nd.dot(h, weights[-1]) - X_i) ** 2).sum() / (2 * len(X))
            l.backward()
        adam(weights, [W.grad for W in weights], states)
    return [W.asnumpy() for W in weights]


def judge(make: Any, k: int = 4, sent: Any = None, kept: Any = None) -> CheckPassed:
    """CheckFailed if layers in a split compute, send or keep something else than they should; the
    net and the batches are drawn.

    sent(N): bytes of a step, divided by k - 1, for N bytes of weights; kept(k): bytes for each
    weight.
    """
    draw = np.random.default_rng()
    count, seed = draw.integers(3, 6), int(draw.integers(10**6))
    values = draw_weights([8 * k] * count, seed)
    batches = draw_batches(4, rows=8 * k, width=8 * k, seed=seed + 1)
    with virtual_gpus(k) as ctxs:
        _check_layer(make, values[0], ctxs)
        expected = alone(values, batches, ctxs[0], parts=k)
        found = train(make, ctxs, batches, values)
    _check_values(found.weights, expected, values)
    n = sum(v.nbytes for v in values)
    if sent is not None and found.sent != (k - 1) * sent(n):
        text = f"{found.sent} bytes travel in a step, {(k - 1) * sent(n)} are expected"
        raise CheckFailed("bytes", f"{text}. Which exchange runs too often, or sends too much?")
    if kept is not None and set(found.kept) != {kept(k) * n / 4}:
        text = f"{kept(k) * n / 4:g} are expected. A view keeps its whole array"
        raise CheckFailed("memory", f"after a step the devices keep {found.kept} bytes, {text}")
    return CheckPassed(f"{make.__name__}: {k} devices compute what one device computes")


def _check_layer(make: Any, value: np.ndarray, devices: list[Context]) -> None:
    """Refuse what is no layer, or whose `gather` does not give the whole matrix everywhere."""
    try:
        inspect.signature(make).bind(value, devices)
    except TypeError:
        text = f"got {make!r:.60}: need a class whose objects are made by Name(value, devices)"
        raise CheckFailed("class", text) from None
    layer = make(value, devices)
    if lacks := [x for x in ("gather", "collect", "update") if not hasattr(layer, x)]:
        text = f"the object that {make.__name__}(value, devices) returns has no {lacks}"
        raise CheckFailed("methods", f"{text}: derive the class from lab.Layer, and write `update`")
    wholes = layer.gather()
    if not isinstance(wholes, (list, tuple)) or not all(isinstance(W, NDArray) for W in wholes):
        raise CheckFailed("nothing", f"gather() returns {wholes!r:.60}: return whole matrices")
    if [W.context for W in wholes] != list(devices):
        raise CheckFailed("place", "gather() returns an array for each device, on this device")
    if wholes[0].shape != value.shape:
        raise CheckFailed("shape", f"gather() gives {wholes[0].shape}, the layer is {value.shape}")


def _check_values(found: list, expected: list, values: list) -> None:
    """Refuse weights that differ between devices, or from those of one device."""
    if all((row[0] == v).all() for row, v in zip(found, values)):
        text = "does update change the weights, and does gather read the new ones?"
        raise CheckFailed("old", f"after all steps gather still gives the first weights: {text}")
    for l, (row, W) in enumerate(zip(found, expected)):
        if any((copy != row[0]).any() for copy in row):
            raise CheckFailed("stale", f"layer {l} differs between devices: were all shards sent?")
        if not np.allclose(row[0], W, rtol=0, atol=1e-5):
            raise CheckFailed("values", f"layer {l} is not as on one device: were all parts added?")


def check_gather_once(answer: Any) -> None:
    """Exercise 6, on two and on four devices."""
    for k in (2, 4):
        print(judge(answer, k, sent=lambda n: 2 * n, kept=lambda k: 16 / k))


# -- two layers in a split -------------------------------------------------------------------------


def cut(value: np.ndarray, axis: int, devices: Sequence[Context]) -> list[NDArray]:
    """Equal parts of an array along an axis, one on each device; axis 1: columns, axis 0: rows."""
    parts = np.split(value, len(devices), axis)
    return [nd.array(part, ctx=ctx) for part, ctx in zip(parts, devices)]


# -- pipelines -------------------------------------------------------------------------------------


class Timeline(NamedTuple):
    """A schedule on the virtual clock: for each device its passes as (pass, begin, end)."""

    rows: list[list[tuple[tuple, int, int]]]

    @property
    def length(self) -> int:
        return max(end for row in self.rows for _, _, end in row)

    @property
    def idle(self) -> Fraction:
        """The share of the time in which the devices wait."""
        busy = sum(end - begin for row in self.rows for _, begin, end in row)
        return 1 - Fraction(busy, self.length * len(self.rows))

    @property
    def kept(self) -> list[int]:
        """For each device the most forward passes whose backward pass is still to come."""
        found = []
        for row in self.rows:
            now = list(itertools.accumulate(1 if step[0] == "F" else -1 for step, _, _ in row))
            found.append(max(now))
        return found

    def __str__(self) -> str:
        lines = []
        for device, row in enumerate(self.rows):
            line = ["."] * self.length
            for (kind, _, i), begin, end in row:
                sign = ("0123456789" if kind == "F" else "abcdefghij")[i % 10]
                line[begin:end] = sign * (end - begin)
            lines.append(f"gpu({device}) {''.join(line)}")
        return "\n".join(lines)


def run(schedule: list[list[tuple]]) -> Timeline:
    """Run passes ("F" or "B", stage, microbatch) on a virtual clock; F takes 1, B takes 2.

    Each device runs its passes in their order. A pass waits for those whose results it uses: F for
    F of the stage before, B for F of its stage and B of the stage behind. Copies take no time.
    """
    last = max(stage for passes in schedule for _, stage, _ in passes)
    ends: dict[tuple, int] = {}
    todo, rows = [list(passes)[::-1] for passes in schedule], [[] for _ in schedule]
    while any(todo):
        before = len(ends)
        for passes, row in zip(todo, rows):
            while passes and all(need in ends for need in _needs(passes[-1], last)):
                step = tuple(passes.pop())
                free = row[-1][2] if row else 0
                begin = max([free, *(ends[need] for need in _needs(step, last))])
                ends[step] = begin + (1 if step[0] == "F" else 2)
                row.append((step, begin, ends[step]))
        if len(ends) == before:
            device = next(device for device, passes in enumerate(todo) if passes)
            step = todo[device][-1]
            lacks = [need for need in _needs(step, last) if need not in ends]
            text = f"device {device} waits before {tuple(step)} for {lacks[0]}"
            raise CheckFailed("order", f"the devices wait for each other: {text}")
    return Timeline(rows)


def _needs(step: Sequence, last: int) -> list[tuple]:
    """The passes whose results a pass uses."""
    kind, stage, i = step
    if kind == "F":
        return [("F", stage - 1, i)] if stage else []
    own = ("F", stage, i)
    return [own] if stage == last else [own, ("B", stage + 1, i)]


# -- exercise 7 ------------------------------------------------------------------------------------

#: Of the time of 1F1B with two stages in a row on each device.
AT_MOST = Fraction(92, 100)


def check_schedule(answer: Callable[..., Any]) -> None:
    """2 p stages on p devices: shorter than 1F1B, and no device keeps more than 3 p activations."""
    drawn = random.choice([3, 4, 5])
    for p, m in ((4, 8), (drawn, random.choice([2, 3]) * drawn)):
        schedule = read_schedule(answer(p, m), p, m)
        found = run(schedule)
        case = f"{p} devices, {m} microbatches"
        if max(found.kept) > 3 * p:
            device = found.kept.index(max(found.kept))
            text = f"{case}: device {device} keeps {max(found.kept)} activations, it has room for"
            raise CheckFailed("memory", f"{text} {3 * p}. Let its backward passes begin earlier")
        most = AT_MOST * 6 * (m + p - 1)
        if found.length > most:
            text = f"{case}: it takes {found.length}, asked are at most {float(most):g}"
            raise CheckFailed("slow", f"{text}. {_longest_wait(found)}")
        print(CheckPassed(f"{case}: it takes {found.length}, idle for {found.idle} of the time"))


def _longest_wait(found: Timeline) -> str:
    """A sentence about the device that waits longest before a pass."""
    waits = []
    for device, row in enumerate(found.rows):
        for (_, _, end), (step, begin, _) in itertools.pairwise(row):
            waits.append((begin - end, device, step))
        waits.append((row[0][1], device, row[0][0]))
    wait, device, step = max(waits)
    return f"The longest wait: device {device} waits {wait} before {step}"


def read_schedule(entry: Any, p: int, m: int) -> list[list[tuple]]:
    """The schedule as tuples; CheckFailed unless each pass is there once, on its stage's device."""
    if entry is None:
        raise CheckFailed("none", "my_schedule(p, m) returns None: return p lists of passes")
    home: dict[int, int] = {}
    seen: set[tuple] = set()
    schedule: list[list[tuple]] = []
    try:
        for device, passes in enumerate(islice(entry, 1000)):
            schedule.append([])
            for kind, stage, i in islice(passes, 10_000):
                step = (str(kind), int(stage), int(i))
                if step[0] not in ("F", "B") or not (0 <= step[1] < 2 * p and 0 <= step[2] < m):
                    text = f'{step}: kinds are "F" and "B", stages 0 to {2 * p - 1}, microbatches'
                    raise CheckFailed("unknown", f"{text} 0 to {m - 1}")
                if step in seen:
                    raise CheckFailed("twice", f"{step} is there twice, again on {device}")
                if home.setdefault(step[1], device) != device:
                    text = f"stage {step[1]} is on devices {home[step[1]]} and {device}: its"
                    raise CheckFailed("moved", f"{text} weights are on one device only")
                seen.add(step)
                schedule[-1].append(step)
    except (TypeError, ValueError):
        text = f'a schedule has lists of passes ("F" or "B", stage, microbatch), got {entry!r:.80}'
        raise CheckFailed("form", text) from None
    for step in itertools.product("FB", range(2 * p), range(m)):
        if step not in seen:
            raise CheckFailed("missing", f"{p} devices, {m} microbatches: no device runs {step}")
    if len(schedule) != p or not all(schedule):
        used = sum(map(bool, schedule))
        raise CheckFailed("devices", f"{used} lists have passes; use all {p} devices")
    return schedule
