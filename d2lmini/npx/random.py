"""`npx.random`: the seed; `np.random` draws numbers."""

from __future__ import annotations

from typing import Any

from d2lmini.base import missing_attribute
from d2lmini.ops.random_state import seed as seed


def __getattr__(name: str) -> Any:
    raise missing_attribute("npx.random", name, ("seed",), "; np.random draws numbers")
