"""Small programs on arrays, and what they say in d2lmini and in the real MXNet 1.9.1.

Each module has `LINES`, a program a line, and `PROGRAMS`, which blank lines separate. The value of
a program is that of its last expression, or its error. `data/nd_answers.json` has MXNet's answers
(`python tests/nd_rows/answers.py` asks MXNet again). Both interpreters import this package.
"""

import ast
import json
import math
import textwrap
import warnings

import numpy as np

MODULES = "storage gradients functions arrays methods testing".split()


def programs(module):
    """The programs of a module of this package, in order."""
    lines = [line for line in module.LINES.splitlines() if line]
    longer = [text.strip("\n") for text in module.PROGRAMS.split("\n\n")]
    return lines + [text for text in longer if text]


def answer(mx, program):
    """{"value": ...} or {"error": names of its class and of the base classes}, as JSON has it."""
    names = {"mx": mx, "np": np, "tu": mx.test_utils, "__name__": "program"}
    names.update({name: getattr(mx, name) for name in "nd sym autograd gluon".split()})
    tree = ast.parse(textwrap.dedent(program))
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    mx.random.seed(1)
    np.random.seed(1)
    default_ctx = getattr(mx.Context._default_ctx, "value", None) or mx.cpu()
    try:
        with warnings.catch_warnings(), mx.name.NameManager():
            warnings.simplefilter("ignore")
            exec(compile(tree, "program", "exec"), names)
            value = eval(compile(last, "program", "eval"), names) if last else None
            return json.loads(json.dumps({"value": plain(mx, value)}))
    except Exception as problem:
        return {"error": [kind.__name__ for kind in type(problem).__mro__]}
    finally:
        mx.autograd.set_recording(False)
        mx.autograd.set_training(False)
        mx.test_utils.set_default_context(default_ctx)
        wait_for_errors(mx)


def wait_for_errors(mx):
    """An error that nothing has waited for belongs to the program that is over."""
    try:
        mx.nd.waitall()
    except mx.MXNetError:
        pass


def plain(mx, value):
    """A value as JSON has it. Arrays become their dtype, shape and elements."""
    if isinstance(value, mx.nd.NDArray):
        return ["NDArray", *plain(mx, value.asnumpy())[1:]]
    if isinstance(value, np.ndarray):
        return ["ndarray", value.dtype.name, list(value.shape), np.asarray(value).tolist()]
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.generic):
        return [value.dtype.name, value.item()]
    if isinstance(value, mx.sym.Symbol):
        return ["Symbol", *value.list_outputs()]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [plain(mx, each) for each in value]]
    if isinstance(value, dict):
        return ["dict", [[plain(mx, key), plain(mx, each)] for key, each in value.items()]]
    if isinstance(value, type):
        return np.dtype(value).name if issubclass(value, np.generic) else value.__name__
    return value if isinstance(value, (str, bool, int, float, type(None))) else str(value)


def alike(ours, theirs):
    """Do two answers agree? Numbers to the precision of float32; an error may be of a subclass."""
    if isinstance(ours, dict):
        if ours.keys() != theirs.keys():
            return False
        if "error" in ours:
            return theirs["error"][0] in ours["error"]
        return alike(ours["value"], theirs["value"])
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        return (math.isnan(ours) and math.isnan(theirs)) or (
            ours == theirs or math.isclose(ours, theirs, rel_tol=1e-4, abs_tol=1e-6)
        )
    return type(ours) is type(theirs) and ours == theirs
