"""The real MXNet as an oracle: a process of the interpreter that D2LMINI_MXNET_PYTHON names."""

from __future__ import annotations

import os

from generators.twin import Twin, TwinError

PYTHON = os.environ.get("D2LMINI_MXNET_PYTHON")

MXNetError = TwinError


class MXNet(Twin):
    """A running MXNet; `results(text)` is what a program keeps there."""

    def __init__(self) -> None:
        super().__init__("mxnet")
