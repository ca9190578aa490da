"""The second edition's helpers over the real MXNet: the oracle of `d2l.mxnet`.

    MXNET_PYTHON peer_d2l.py PROGRAM.py

The helpers are written with the names that MXNet has, so the same files run there: what they
import from `d2lmini` is MXNet's. Then `from d2l import mxnet as d2l` gets them in the program.
"""

import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

LIBRARY = Path(__file__).parents[2] / "d2lmini"


def install(mx):
    """Make `import d2lmini` MXNet, but for the helpers, and `from d2l import mxnet` these."""
    for name, module in list(sys.modules.items()):
        top, dot, rest = name.partition(".")
        if top == "mxnet":
            sys.modules["d2lmini" + dot + rest] = module
    for folder in ("d2l", "compat"):
        package = sys.modules[f"d2lmini.{folder}"] = ModuleType(f"d2lmini.{folder}")
        package.__path__ = [str(LIBRARY / folder)]
    # A stopwatch of the library also counts what is pending.
    mx.base.callsite, mx.engine.waitall = ModuleType("callsite"), mx.nd.waitall
    mx.engine.stats = lambda: SimpleNamespace(pending=0)
    from d2lmini.compat.books import second, shared

    # What both editions share calls nd's operations, which take np's arrays in d2lmini only.
    shared.nd = SimpleNamespace(
        add_n=lambda *arrays: sum(arrays), dot=mx.np.dot, maximum=mx.np.maximum,
        minimum=mx.np.minimum, relu=mx.npx.relu, sqrt=mx.np.sqrt, zeros_like=mx.np.zeros_like,
    )  # fmt: skip
    sys.modules["d2l"] = sys.modules["d2lmini.d2l"]
    sys.modules["d2l.mxnet"] = sys.modules["d2l"].mxnet = second
    return second


if __name__ == "__main__":
    import mxnet as mx

    install(mx)
    runpy.run_path(sys.argv[1], run_name="__main__")
