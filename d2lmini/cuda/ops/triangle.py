"""Functions of `linalg` on a GPU, called a second time if memory is short.

cuSOLVER allocates memory for its own use, which CuPy's pool may have cached.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from d2lmini.cuda.current import with_memory
from d2lmini.ops.triangle import lapack


@lapack.kernel("cuda")
def _(xp: Any, name: str, *arrays: Any) -> Any:
    return with_memory(partial(getattr(xp.linalg, name), *arrays))
