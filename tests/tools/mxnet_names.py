"""The public names of MXNet 1.9, by module: written to `mxnet_alias/mxnet_names.txt`, from which
docs/migration.md counts. Run by an interpreter that has MXNet:

    python tests/tools/mxnet_names.py > d2lmini/compat/mxnet_alias/mxnet_names.txt
"""

import pkgutil
import re
import types

SPACES = """
    nd nd.NDArray nd.random nd.linalg nd.contrib sym sym.Symbol autograd gluon gluon.Block
    gluon.HybridBlock gluon.Parameter gluon.ParameterDict gluon.Trainer gluon.nn gluon.rnn
    gluon.loss gluon.data gluon.data.vision gluon.data.vision.transforms gluon.utils
    gluon.contrib.nn init optimizer lr_scheduler metric io kv context random profiler
    viz runtime test_utils np np.ndarray np.random np.linalg npx npx.random
""".split()


#: Where MXNet keeps what it shows elsewhere: generated operations, and those of `mx.random`.
HOMES = {"nd": "ndarray", "sym": "symbol", "random": "mxnet.ndarray.random", "kv": "mxnet.kvstore"}


def is_name(path, space, name, value):
    """A name that programs use: no module, nothing that was only imported from elsewhere."""
    if name.startswith("_") or isinstance(value, types.ModuleType):
        return False
    if isinstance(space, type) or path.startswith("np"):
        return True
    home = getattr(value, "__module__", None) or ""
    return callable(value) and home.startswith((space.__name__, HOMES.get(path, space.__name__)))


def refuses(array, name):
    """Is the name of `np.ndarray` one that says "no attribute" when it is called?"""
    for arguments in ((), (array,)):
        try:
            getattr(array, name)(*arguments)
        except Exception as problem:
            if "no attribute" in str(problem):
                return True
    return False


def names_of(mx, path):
    space = mx
    for part in path.split("."):
        space = getattr(space, part)
    names = sorted(n for n in dir(space) if is_name(path, space, n, getattr(space, n, None)))
    return [n for n in names if path != "np.ndarray" or not refuses(mx.np.ones(1), n)]


def modules(mx):
    """The public modules; what fails to import is left out."""
    found = pkgutil.walk_packages(mx.__path__, "mxnet.", onerror=lambda name: None)
    names = [module.name.partition(".")[2] for module in found]
    return sorted(n for n in names if not re.search(r"(^|\.)(_|gen_|libmxnet)", n))


def table(mx):
    lines = [f"{path}: {' '.join(names_of(mx, path))}\n" for path in SPACES]
    return "".join(lines) + f"modules: {' '.join(modules(mx))}\n"


if __name__ == "__main__":
    import mxnet

    print(table(mxnet), end="")
