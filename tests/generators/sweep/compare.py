"""Two answers to one program: the first difference, as a kind and a sentence."""

import numpy as np

#: rtol and atol for values of a dtype.
NEAR = {"float16": (2e-2, 2e-2), "float32": (1e-3, 1e-4), "float64": (1e-4, 1e-5)}


def difference(theirs, ours, is_random, rough=False):
    """None where the answers agree, else (kind, sentence). rough: as near as float16 comes."""
    (kept, error), (kept_here, error_here) = theirs, ours
    for (label, value), (_, here) in zip(kept, kept_here):
        found = between(value, here, is_random, rough)
        if found:
            return f"{found[0]} of {label}", found[1]
    if error and not error_here:
        return "allowed here", error
    if error_here and not error:
        return "refused here", error_here
    return None  # the same, or both refuse


def between(value, here, is_random, rough):
    """The first difference of two values that were kept."""
    if isinstance(value, list) and value and isinstance(here, list):
        if value[0] != here[0]:
            return "type", f"{value[0]}, here {here[0]}"
        if isinstance(value[1] if len(value) > 1 else None, np.ndarray):
            return between_arrays(value[1], here[1], is_random, rough)
        if len(value) != len(here):
            return "count", f"{len(value) - 1}, here {len(here) - 1}"
        parts = (between(a, b, is_random, rough) for a, b in zip(value[1:], here[1:]))
        return next((found for found in parts if found), None)
    if isinstance(value, float) and isinstance(here, float):
        same = is_random or np.isclose(value, here, 1e-4, 1e-6, equal_nan=True)
        return None if same else ("value", f"{value}, here {here}")
    if type(value) is not type(here):
        return "type", f"{value!r}, here {here!r}"[:300]
    return None if value == here or is_random else ("value", f"{value!r}, here {here!r}"[:400])


def between_arrays(value, here, is_random, rough):
    """Of two arrays; random ones agree in shape, dtype and, where they are large, moments."""
    if value.shape != here.shape:
        return "shape", f"{value.shape}, here {here.shape}"
    if value.dtype != here.dtype:
        return "dtype", f"{value.dtype}, here {here.dtype}"
    if is_random:
        return moments(value, here)
    if value.dtype.kind not in "fc":
        same = np.array_equal(value, here)
    else:
        rtol, atol = NEAR["float16" if rough else value.dtype.name]
        with np.errstate(all="ignore"):
            same = np.allclose(value, here, rtol, atol, equal_nan=True)
    return None if same else ("value", f"{brief(value)}, here {brief(here)}")


def moments(value, here):
    if value.size < 300 or value.dtype.kind not in "fiu":
        return None
    one, other = value.astype("f8"), here.astype("f8")
    spread = max(one.std(), other.std())
    if not np.isfinite(spread) or abs(one.mean() - other.mean()) < 0.5 * spread + 1e-9:
        return None
    return "moments", f"mean {one.mean():.3g}, here {other.mean():.3g}; deviation {spread:.3g}"


def brief(array):
    return np.array2string(array, threshold=12, precision=5).replace("\n", "")[:160]
