"""Steps of optimizers and of recurrent layers, each a formula that becomes one kernel.

**Optimizers.** A net has tens of parameters, most of them tiny, and a launch costs more than a tiny
update. So one launch updates up to `MAX_PARAMETERS` parameters: row r of its blocks (blockIdx.y)
works on parameter r. The step is an op of `ops/update.py`, which computes on names in C as the ops
of a fused group do (`symbols`). Its numbers, such as a learning rate that changes at every step,
become parameters of the kernel: the text is made once, and compiled once.

**LSTM and GRU.** A step is a product and one kernel, forward and backward. Formulas and names are
those of `ops/rnn_compute.py`; the backward kernels compute the slopes of a step, so the forward
pass stores none. The gates are views of one array, and the outputs of two directions lie side by
side: so the kernels are made for strides (`formulas.fill`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from d2lmini.cuda.kernels.formulas import broken, complete, fill, store_text
from d2lmini.cuda.kernels.launch import Kernel, NotRecorded, index_type
from d2lmini.cuda.kernels.symbols import C_TYPES, Body, Names, c_type, names
from d2lmini.ops.products import matmul
from d2lmini.ops.rnn_compute import GRU, KINDS, LSTM, Layer, layer_of, sum_rows
from d2lmini.ops.symbolic import Proxy, trace
from d2lmini.ops.update import UpdateStep, run
from d2lmini.ops.update_program import Update

#: Parameters in one launch: with five arrays each, their pointers fit 4 KB, which CUDA allows.
MAX_PARAMETERS = 32


class _Numbers(Names):
    """The array module for a step: each number is a parameter of the kernel: p0, p1, ..."""

    def __init__(self, body: Body | None):
        self.body = body
        self.values: list[float] = []
        self.types: list[str] = []

    def number_of(self, value: Any, dtype: np.dtype) -> Proxy:
        self.values.append(value)
        self.types.append(c_type(dtype))
        return Proxy(self, f"p{len(self.values) - 1}", dtype, self.body)


@lru_cache(maxsize=256)
def _kernel(
    rule: Update, dtypes: tuple[np.dtype, ...], attrs: tuple[tuple[str, float], ...], count: int,
    index: str,
) -> Kernel:  # fmt: skip
    """The kernel for `count` parameters: its arguments are the arrays of all parameters, their
    sizes, and the numbers."""
    body = Body()
    words = [f"x{i}" for i in range(len(dtypes))]
    values = [body.load(f"{x}[i]", d) for x, d in zip(words, dtypes)]
    before = [value.expr for value in values]
    numbers = _Numbers(body)
    trace(numbers, rule.compute, values, dict(attrs), out=values[0])
    is_written = [value.expr != old for value, old in zip(values, before)]
    kinds = [f"{'' if w else 'const '}{C_TYPES[d.char]}*" for d, w in zip(dtypes, is_written)]
    arrays = list(zip(kinds, words))
    given = [f"{kind} {name}_{r}" for r in range(count) for kind, name in arrays]
    given += [f"const {index} n_{r}" for r in range(count)]
    given += [f"const {kind} p{i}" for i, kind in enumerate(numbers.types)]
    stores = [f"{x}[i] = {store_text(v)};" for x, v, w in zip(words, values, is_written) if w]
    title = rule.name.strip("_")
    lines = [
        *broken(f'extern "C" __global__ void {title}({", ".join(given)}) {{'),
        *(f"    {kind} {name} = nullptr;" for kind, name in arrays),
        f"    {index} n = 0;",
        "    switch (blockIdx.y) {  // row r of the blocks works on parameter r",
        *(
            f"        case {r}: {' '.join([f'{x} = {x}_{r};' for x in (*words, 'n')])} break;"
            for r in range(count)
        ),
        "    }",
        f"    const {index} first = blockIdx.x * blockDim.x + threadIdx.x;",
        f"    for ({index} i = first; i < n; i += gridDim.x * blockDim.x) {{",
        *(f"        {line}" for line in [*body.lines, *stores]),
        "    }",
        "}",
        "",
    ]
    return complete(title, "\n".join(lines))


@run.kernel("cuda")
def _(xp: Any, steps: Sequence[UpdateStep], groups: list[tuple]) -> None:
    """Steps that differ only in their arrays, which are C-contiguous, share launches."""
    alike: dict[Any, list[int]] = {}
    for i, ((rule, attrs), arrays) in enumerate(zip(steps, groups, strict=True)):
        key = rule, tuple(a.dtype for a in arrays), tuple(attrs.items())
        alike.setdefault(key, []).append(i)
    for (rule, dtypes, attrs), members in alike.items():
        numbers = partial(_numbers, steps, members, dtypes[0], kinds := _kinds(attrs))
        for begin in range(0, len(members), MAX_PARAMETERS):
            part = [groups[i] for i in members[begin : begin + MAX_PARAMETERS]]
            sizes = [arrays[0].size for arrays in part]
            kernel = _kernel(rule, dtypes, kinds, len(part), index_type(sizes))
            given = [array for arrays in part for array in arrays]
            kernel(xp, max(sizes), *given, *sizes, rows=len(part), more=numbers)


def _kinds(attrs: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Attributes whose formula is that of `attrs`: only numbers that switch something off make
    another formula."""
    return tuple([(k, v if v <= 0 or v == 1 else 0.5) for k, v in attrs])


def _numbers(
    steps: Sequence[UpdateStep], members: list[int], dtype: np.dtype, kinds: tuple
) -> list[float]:
    """The numbers of the steps `members`, which are equal; NotRecorded if they no longer are, or
    have another formula."""
    first = steps[members[0]]
    if _kinds(first.attrs.items()) != kinds or any([steps[i] != first for i in members]):
        raise NotRecorded("another formula, or steps that were equal differ")
    found = _Numbers(None)
    first.op.step(found, dtype, first.attrs)
    return found.values


# -- recurrent layers ------------------------------------------------------------------------------


def _squash(x: Any) -> Any:
    return 1 / (1 + names.exp(-x))


def _gates(a: Any, n: int) -> list[Any]:
    """(N, n H) as n views (N, H)."""
    H = a.shape[1] // n
    return [a[:, k * H : k * H + H] for k in range(n)]


def _lstm_step(
    i: Any, f: Any, g: Any, o: Any, ci: Any, cf: Any, cg: Any, co: Any, before: Any
) -> list[Any]:
    i, f, g, o = _squash(i + ci), _squash(f + cf), names.tanh(g + cg), _squash(o + co)
    cell = f * before + i * g
    return [i, f, g, o, cell, o * names.tanh(cell)]


def _lstm_back(
    head: Any, dh: Any, i: Any, f: Any, g: Any, o: Any, before: Any, after: Any, dc: Any
) -> list[Any]:
    """The gradients of the gates before their activations, and of the cell before."""
    bent = names.tanh(after)
    d = dh + head
    e = dc + d * o * (1 - bent * bent)
    da = [e * i * (1 - i) * g, e * f * (1 - f) * before, e * i * (1 - g * g)]
    return [*da, d * o * (1 - o) * bent, e * f]


class FusedLSTM(LSTM):
    """`LSTM`, with one kernel for each step."""

    def step(self, c: Any, w: Any, states: Any, y: Any, kept: Any, work: Any) -> list[Any]:
        gates, cell = kept
        parts = _gates(gates, 4)
        inputs = [*parts, *_gates(c, 4), states[1]]
        fill(self.xp, "lstm_step", _lstm_step, inputs, [*parts, cell, y], y.shape)
        return [y, cell]

    def back(self, D: Any, before: Any, kept: Any, across: Any, y: Any, g: Any, heads: Any) -> None:
        (gates, cells), (dh, dc), cell = kept, heads, before[1]
        for t in reversed(range(len(g))):
            inputs = [g[t], dh, *_gates(gates[t], 4), cell[t], cells[t], dc]
            fill(self.xp, "lstm_back", _lstm_back, inputs, [*_gates(D[0][t], 4), dc], dc.shape)
            matmul(self.xp, D[0][t], across, dh)


def _gru_step(cr: Any, cz: Any, cn: Any, bias: Any, h: Any, r: Any, z: Any, n: Any) -> list[Any]:
    r, z = _squash(r + cr), _squash(z + cz)
    share = cn + bias
    n = names.tanh(n + r * share)
    return [r, z, n, share, n + z * (h - n)]


def _gru_back(g: Any, more: Any, r: Any, z: Any, n: Any, share: Any, h: Any, dh: Any) -> list[Any]:
    """The gradients of a_n and of the three parts of c, and what goes directly to the state."""
    d = dh + more + g
    dn = d * (1 - n * n) * (1 - z)
    return [dn, dn * r * share * (1 - r), d * (1 - z) * z * (h - n), dn * r, d * z]


class FusedGRU(GRU):
    """`GRU`, with one kernel for each step."""

    def step(self, c: Any, w: Any, states: Any, y: Any, kept: Any, work: Any) -> list[Any]:
        rz, n, share = kept
        r, z = _gates(rz, 2)
        inputs = [*_gates(c, 3), w.h2h_bias[rz.shape[1] :], states[0], r, z, n]
        fill(self.xp, "gru_step", _gru_step, inputs, [r, z, n, share, y], y.shape)
        return [y]

    def back(self, D: Any, before: Any, kept: Any, across: Any, y: Any, g: Any, heads: Any) -> None:
        (rz, n, share), (dn, dc), (dh,), (h,) = kept, D, heads, before
        more = self.xp.zeros(dh.shape, dh.dtype)
        for t in reversed(range(len(g))):
            inputs = [g[t], more, *_gates(rz[t], 2), n[t], share[t], h[t], dh]
            fill(self.xp, "gru_back", _gru_back, inputs, [dn[t], *_gates(dc[t], 3), dh], dh.shape)
            matmul(self.xp, dc[t], across, more)
        dh += more


@layer_of.kernel("cuda")
def _(xp: Any, mode: str) -> Layer:
    fused: dict[str, type[Layer]] = {"lstm": FusedLSTM, "gru": FusedGRU}
    return fused.get(mode, KINDS[mode])(xp)


@sum_rows.kernel("cuda")
def _(xp: Any, x: Any, out: Any) -> None:
    fill(xp, "sum_rows", _sums, [x], [out[None]], x.shape, (0,))


def _sums(x: Any) -> list[Any]:
    return [names.sum(x)]
