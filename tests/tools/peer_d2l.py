"""The second edition's helpers over the real MXNet: the oracle of `d2lmini.d2l.mxnet`.

    MXNET_PYTHON peer_d2l.py PROGRAM.py

The helpers are written with the names that MXNet has, so the same files run there: what they
import from `d2lmini` is MXNet's. Then `from d2l import mxnet as d2l` gets them in the program.
"""

import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

BOOK = Path(__file__).parents[2] / "d2lmini" / "d2l"


def install(mx):
    """Make `import d2lmini` MXNet, but for `d2lmini.d2l`, and `import d2l` that."""
    package = ModuleType("d2lmini.d2l")
    package.__path__ = [str(BOOK)]
    for name, module in list(sys.modules.items()):
        top, dot, rest = name.partition(".")
        if top == "mxnet":
            sys.modules["d2lmini" + dot + rest] = module
    sys.modules["d2lmini.d2l"] = sys.modules["d2l"] = package
    # A stopwatch of the library also counts what is pending.
    mx.callsite, mx.engine.waitall = ModuleType("callsite"), mx.nd.waitall
    mx.engine.stats = lambda: SimpleNamespace(pending=0)
    from d2lmini.d2l import models, mxnet

    models.nd = mx.npx  # the layers of both editions call nd.relu
    sys.modules["d2l.mxnet"] = mxnet
    return mxnet


if __name__ == "__main__":
    import mxnet as mx

    install(mx)
    runpy.run_path(sys.argv[1], run_name="__main__")
