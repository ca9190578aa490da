"""Means and variances of groups of numbers, and the sums that a normalization's gradient needs.

A block goes through a part of a group: first for its mean, then for the squared distances from this
mean, while the numbers are still in the cache. A second kernel combines the parts of a group in
their order (T. F. Chan et al., 1979), and computes what depends only on the group:

    mean = sum n_k mean_k / n        M2 = sum M2_k + n_k (mean_k - mean)^2

So no digits cancel, as they would in E x^2 - (E x)^2, and large groups occupy many blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from d2lmini.cuda.kernels.blocks import BLOCK
from d2lmini.cuda.kernels.launch import THREADS
from d2lmini.cuda.kernels.typed import TypedKernel

Shape = tuple[int, ...]

#: Numbers in a part, at least; parts of all groups, at most.
MIN_PART, MAX_PARTS = 4096, 1024


class Groups(NamedTuple):
    """Where the numbers of a group lie: number j of group g at

    g / split * far + g % split + j / inner * jump + j % inner
    """

    number: int
    size: int
    split: int
    far: int
    inner: int
    jump: int

    @property
    def parts(self) -> int:
        """The number of parts that a group is cut into."""
        return max(1, min(self.size // MIN_PART, MAX_PARTS // self.number))


def groups_of(shape: Shape, axes: Shape) -> Groups:
    """Groups along `axes` of an array in order: the last ones, or (0, 2) or (1,) of three."""
    size = prod(shape[a] for a in axes)
    count = prod(shape) // size
    if axes == tuple(range(len(shape) - len(axes), len(shape))):
        return Groups(count, size, 1, size, size, 0)
    if len(shape) == 3 and axes == (0, 2):
        return Groups(count, size, 1, shape[2], shape[2], shape[1] * shape[2])
    assert len(shape) == 3 and axes == (1,), (shape, axes)
    return Groups(count, size, shape[2], size * shape[2], 1, shape[2])


_PARTS = """$block
extern "C" __global__ void ${title}(
    $inputs, A* parts, const Index count, const Index size, const Index split, const Index far,
    const Index inner, const Index jump, const Index cut
) {
    for (Index b = blockIdx.x; b < count * cut; b += gridDim.x) {
        const Index group = b / cut, base = group / split * far + group % split;
        const Index begin = (long long) size * (b % cut) / cut;
        const Index end = (long long) size * (b % cut + 1) / cut;
        A sum = 0;
        for (Index j = begin + threadIdx.x; j < end; j += blockDim.x)
            sum += loaded(x[base + j / inner * jump + j % inner]);
        const A mean = block_reduce<false>(sum) / A(end - begin);
        A squares = 0$more_sums;
        for (Index j = begin + threadIdx.x; j < end; j += blockDim.x) {
            const Index place = base + j / inner * jump + j % inner;
            const A away = loaded(x[place]) - mean;
            squares += away * away;$more_steps
        }
        squares = block_reduce<false>(squares);$more_together
        if (threadIdx.x == 0) {
            parts[$width * b] = mean;
            parts[$width * b + 1] = squares;$more_parts
        }
    }
}
"""
_MOMENTS = TypedKernel(
    "moments", _PARTS, block=BLOCK, title="moments", inputs="const T* x", more_sums="",
    more_steps="", more_together="", width="2", more_parts="",
)  # fmt: skip
_SLOPES = TypedKernel(
    "slopes", _PARTS, block=BLOCK, title="slopes", inputs="const T* g, const T* x",
    more_sums=", slopes = 0, along = 0",
    more_steps="""
            slopes += loaded(g[place]);
            along += loaded(g[place]) * away;""",
    more_together="""
        slopes = block_reduce<false>(slopes);
        along = block_reduce<false>(along);""",
    width="4",
    more_parts="""
            parts[4 * b + 2] = slopes;
            parts[4 * b + 3] = along;""",
)  # fmt: skip

_WHOLE = """
    for (Index i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const A* part = parts + i * cut * $width;
        A mean = 0, squares = 0;
        for (Index k = 0; k < cut; ++k) {
            const long long begin = (long long) size * k / cut;
            const A share = A((long long) size * (k + 1) / cut - begin);
            const A before = A(begin), away = part[$width * k] - mean;
            mean += away * (share / (before + share));
            squares += part[$width * k + 1] + away * away * (before * share / (before + share));
        }
        const A variance = squares / A(size);
"""
_STATISTICS = TypedKernel(
    "statistics",
    """
extern "C" __global__ void statistics(
    const A* parts, A* means, A* variances, const Index count, const Index size, const Index cut
) {"""
    + _WHOLE
    + """
        means[i] = mean;
        variances[i] = variance;
    }
}
""",
    width="2",
)
_BATCH_STATISTICS = TypedKernel(
    "batch_statistics",
    """
extern "C" __global__ void batch_statistics(
    const A* parts, A* means, A* variances, T* moving_mean, T* moving_var, T* mean_out,
    T* inverse_out, const Index count, const Index size, const Index cut, const double momentum,
    const double eps
) {"""
    + _WHOLE
    + """
        means[i] = mean;
        variances[i] = variance;
        const A old = A(momentum), now = A(1 - momentum);
        moving_mean[i] = stored(loaded(moving_mean[i]) * old + mean * now);
        moving_var[i] = stored(loaded(moving_var[i]) * old + variance * now);
        mean_out[i] = stored(mean);
        inverse_out[i] = stored(1 / sqrt(variance + A(eps)));
    }
}
""",
    width="2",
)
_SLOPE_STATISTICS = TypedKernel(
    "slope_statistics",
    """
extern "C" __global__ void slope_statistics(
    const A* parts, A* found, T* dgamma, T* dbeta, const Index count, const Index size,
    const Index cut, const double eps
) {"""
    + _WHOLE
    + """
        A slopes = 0, along = 0;
        for (Index k = 0; k < cut; ++k) {
            slopes += part[4 * k + 2];
            along += part[4 * k + 3] + (part[4 * k] - mean) * part[4 * k + 2];
        }
        const A inverse = 1 / sqrt(variance + A(eps));
        dgamma[i] = stored(along * inverse);
        dbeta[i] = stored(slopes);
        found[i] = mean;
        found[i + count] = inverse;
        found[i + 2 * count] = slopes / A(size);
        found[i + 3 * count] = along * inverse * inverse / A(size);
    }
}
""",
    width="4",
)


def _in_parts(xp: Any, kernel: TypedKernel, width: int, groups: Groups, *arrays: Any) -> Any:
    """Run the first kernel: results for the parts of all groups."""
    x = arrays[-1]
    cut = groups.parts
    parts = xp.empty((groups.number * cut * width,), xp.promote_types(x.dtype, "float32"))
    threads = groups.number * cut * THREADS
    kernel(x.dtype, x.size, threads)(xp, threads, *arrays, parts, *groups, cut)
    return parts


def _moments_in_parts(xp: Any, x: Any, axes: Shape) -> tuple[Groups, Any, Any, Any]:
    """The groups, the moments of their parts, and room for the means and the variances."""
    x = xp.ascontiguousarray(x)
    groups = groups_of(x.shape, axes)
    parts = _in_parts(xp, _MOMENTS, 2, groups, x)
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    return groups, parts, *(xp.empty(shape, parts.dtype) for _ in range(2))


def moments(xp: Any, x: Any, axes: Shape) -> tuple[Any, Any]:
    """Mean and (biased) variance over `axes` (see `groups_of`), kept as 1, at least float32."""
    groups, parts, mean, variance = _moments_in_parts(xp, x, axes)
    _STATISTICS(parts.dtype, x.size)(
        xp, groups.number, parts, mean, variance, groups.number, groups.size, groups.parts
    )
    return mean, variance


def batch_moments(
    xp: Any, x: Any, axes: Shape, moving: Sequence[Any], outs: Sequence[Any], momentum: float,
    eps: float,
) -> tuple[Any, Any]:  # fmt: skip
    """As `moments`; also moves the moving mean and variance by 1 - momentum towards the results,
    and fills `outs` with mean and 1 / sqrt(variance + eps). These four arrays are C-contiguous."""
    groups, parts, mean, variance = _moments_in_parts(xp, x, axes)
    _BATCH_STATISTICS(moving[0].dtype, x.size)(
        xp, groups.number, parts, mean, variance, *moving, *outs, groups.number, groups.size,
        groups.parts, float(momentum), float(eps),
    )  # fmt: skip
    return mean, variance


def slope_moments(
    xp: Any, g: Any, x: Any, axes: Shape, eps: float, dgamma: Any, dbeta: Any
) -> tuple[Any, Any, Any, Any]:
    """Fill dgamma with the sums of g (x - mean) i and dbeta with those of g, in order, where
    i = 1 / sqrt(variance + eps); returns mean, i, and the means of g and of g (x - mean) i^2, with
    `axes` kept as 1."""
    g, x = xp.ascontiguousarray(g), xp.ascontiguousarray(x)
    groups = groups_of(x.shape, axes)
    parts = _in_parts(xp, _SLOPES, 4, groups, g, x)
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    found = xp.empty((4, *shape), parts.dtype)
    _SLOPE_STATISTICS(dgamma.dtype, x.size)(
        xp, groups.number, parts, found, dgamma, dbeta, groups.number, groups.size, groups.parts,
        float(eps),
    )  # fmt: skip
    mean, inverse, mean_g, mean_gx = found
    return mean, inverse, mean_g, mean_gx
