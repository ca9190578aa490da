"""Attributes as MXNet writes them in files: every value a string.

>>> import numpy as np
>>> [text_of(v) for v in (True, None, 3, 1e-05, (5, 5), (2,), (None, 1), np.dtype("float32"))]
['True', 'None', '3', '1e-05', '(5, 5)', '(2,)', '(None, 1)', 'float32']

Each op converts the strings back: `Op.bind_attributes` converts strings as it does a user's words.

In a file, labels (which users attach to nodes) share one table with the attributes. Labels with a
meaning in MXNet are written between double underscores. On a node with an op all other labels are,
too, since an op accepts no unknown attribute:

>>> encode_label("lr_mult", False), encode_label("note", False), encode_label("note", True)
('__lr_mult__', 'note', '__note__')
>>> decode_label("__lr_mult__"), decode_label("__shape__")
('lr_mult', '__shape__')
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: Labels that MXNet stores as '__lr_mult__', ... while users write and read 'lr_mult', ...
HIDDEN = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage")


def text_of(value: Any) -> str:
    """An attribute's value as a string."""
    if isinstance(value, (tuple, list)):
        parts = [text_of(v) for v in value]
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (np.dtype, type)):
        return np.dtype(value).name
    return str(value)


def as_given(value: Any) -> str:
    """An attribute's value as MXNet keeps what a caller wrote: 2 for a float stays '2'."""
    return str(value) if isinstance(value, (list, tuple)) else text_of(value)


def encode_label(name: str, on_op: bool) -> str:
    """The key of a label in a file."""
    if name.startswith("__") or not (on_op or name in HIDDEN):
        return name
    return f"__{name}__"


def decode_label(key: str) -> str:
    """The name of a label, from its key in a file."""
    plain = key[2:-2] if key.startswith("__") and key.endswith("__") else ""
    return plain if plain in HIDDEN else key
