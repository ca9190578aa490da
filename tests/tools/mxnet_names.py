"""The public names of MXNet 1.9, by module: written to `tests/data/mxnet_names.txt`, from which
docs/migration.md counts, and `test_mxnet_imports.py` imports. Run by an interpreter that has MXNet:

    python tests/tools/mxnet_names.py > tests/data/mxnet_names.txt

First come the names that programs use, by the short names of their modules; then, by "import" and
the full name, what each public module has that its own package defines.
"""

import importlib
import pkgutil
import re
import types
from pathlib import Path

NAMES = Path(__file__).resolve().parents[1] / "data" / "mxnet_names.txt"

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
    """The public modules by name. Left out is what fails to import, as a setup script does."""
    found = {}
    for module in pkgutil.walk_packages(mx.__path__, "mxnet.", onerror=lambda name: None):
        if not re.search(r"\.(_|gen_|libmxnet|setup$)", module.name):
            try:
                found[module.name] = importlib.import_module(module.name)
            except ImportError:
                continue
    return found


def own_names(name, module):
    """The public names that a module, or another module of its package, defines."""
    above = name.rpartition(".")[0]
    package = name if hasattr(module, "__path__") or above == "mxnet" else above
    found = []
    for own in dir(module):
        value = getattr(module, own, None)
        home = getattr(value, "__module__", None) or package
        if not own.startswith("_") and not isinstance(value, (types.ModuleType, type(None))):
            found += [own] * home.startswith(package)
    return found


def table(mx):
    lines = [f"{path}: {' '.join(names_of(mx, path))}" for path in SPACES]
    for name, module in sorted(modules(mx).items()):
        lines.append(f"import {name}: {' '.join(own_names(name, module))}".rstrip())
    return "\n".join(lines) + "\n"


def stored():
    """The names in the file: {"gluon.nn": ["Activation", ...], "import mxnet.base": [...]}."""
    pairs = [line.partition(":") for line in NAMES.read_text(encoding="utf-8").splitlines()]
    return {path: names.split() for path, _, names in pairs}


if __name__ == "__main__":
    import mxnet

    print(table(mxnet), end="")
