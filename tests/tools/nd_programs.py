"""Small programs on arrays and Symbols, and what a library says to them: both interpreters import
this module.

`data/nd_programs` has the programs. What stands before `====` in a file runs before each of them.
One-line programs come first; after `----` blank lines separate longer ones. The value of a program
is that of its last expression, or its error.
`data/nd_answers.json` has MXNet's answers, `differences.txt` where ours differ, and why.

D2LMINI_MXNET_PYTHON=.../python python tests/tools/nd_programs.py        # asks MXNet again
"""

import ast
import json
import math
import os
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parents[1] / "data"
ANSWERS = DATA / "nd_answers.json"

MODULES = "storage gradients functions arrays methods names symbols".split()

#: Operations, of which the first and second derivatives are taken, with what else they want.
SECOND = """
    Activation(x,act_type='relu') BlockGrad(x) Dropout(x,p=0.5) LeakyReLU(x,slope=0.1)
    abs(x) arccos(x) arccosh(x) arcsin(x) arcsinh(x) arctan(x) arctanh(x) cast(x,dtype='float64')
    cbrt(x) ceil(x) clip(x,a_min=0.2,a_max=0.5) cos(x) cosh(x) degrees(x) erf(x) exp(x)
    expand_dims(x,axis=0) expm1(x) fix(x) flatten(x) flip(x,axis=0) floor(x) gamma(x) gammaln(x)
    identity(x) log(x) log10(x) log1p(x) log2(x) log_softmax(x) logical_not(x)
    make_loss(x) max(x) mean(x) min(x) negative(x) norm(x) ones_like(x) prod(x) radians(x) rcbrt(x)
    reciprocal(x) relu(x) repeat(x,repeats=2) reshape(x,shape=(3,1)) rint(x) round(x) rsqrt(x)
    sigmoid(x) sign(x) sin(x) sinh(x) smooth_l1(x,scalar=2) softmax(x) softmin(x) softsign(x)
    sort(x) sqrt(x) square(x) squeeze(x) sum(x) tan(x) tanh(x) tile(x,reps=(2,)) transpose(x)
    trunc(x) zeros_like(x)""".split()


def second_derivatives(call):
    """The gradient of a weighted gradient, and that of the gradient alone: zeros, or an error, if
    it does not depend on x."""
    start = "1.3, 1.5, 2.4" if call == "arccosh(x)" else "0.3, 0.45, 0.6"
    first = f"""\
x = nd.array([{start}])
w = nd.array([1.0, 2.0, 3.0])
x.attach_grad()
w.attach_grad()
with autograd.record({not call.startswith("Dropout")}):
    y = nd.{call}
    dx = autograd.grad(y, x, create_graph=True, retain_graph=True)[0]
"""
    return [
        f"{first}    z = dx * w\nz.backward()\ndx, x.grad, w.grad",
        f"{first}autograd.grad(dx, [x])  # of {call}",
    ]


def title_of(module):
    """The first line of a file of programs."""
    return _text(module).partition("\n")[0].removeprefix("# ")


def programs(module):
    """The programs of a file, in order, and those that are made for many names."""
    text = _text(module).partition("\n")[2].rpartition("====\n")[2]
    lines, _, longer = text.partition("----\n")
    found = lines.splitlines() + [part.strip("\n") for part in longer.split("\n\n") if longer]
    if module == "gradients":
        found += [program for call in SECOND for program in second_derivatives(call)]
    return found


def before(module):
    """What runs before each program of a file."""
    return _text(module).partition("\n")[2].rpartition("====\n")[0]


@lru_cache
def differences():
    """Pieces of the programs that d2lmini answers in another way, with the reason."""
    pieces = {}
    for paragraph in _text("differences").split("\n\n")[1:]:
        reason, *lines = paragraph.strip("\n").splitlines()
        pieces.update({line.replace(r"\n", "\n"): reason.removeprefix("# ") for line in lines})
    return pieces


def reason_of(program):
    """Why d2lmini answers this program in another way; None if it answers as MXNet does."""
    reasons = differences()
    if program in reasons:
        return reasons[program]
    pieces = reasons.keys() - everything()
    return next((reasons[piece] for piece in pieces if piece in program), None)


@lru_cache
def everything():
    """All programs: each file's."""
    return {program: module for module in MODULES for program in programs(module)}


def _text(module):
    return (DATA / "nd_programs" / f"{module}.txt").read_text(encoding="utf-8")


def answer(mx, program, start=""):
    """After `start`: {"value": ...} or {"error": names of its class and its base classes}."""
    names = {"mx": mx, "np": np, "__name__": "program"}
    names.update({name: getattr(mx, name) for name in "nd sym autograd gluon".split()})
    tree = ast.parse(program)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    mx.random.seed(1)
    np.random.seed(1)
    try:
        with warnings.catch_warnings(), mx.name.NameManager():
            warnings.simplefilter("ignore")
            exec(start, names)
            exec(compile(tree, "program", "exec"), names)
            value = eval(compile(last, "program", "eval"), names) if last else None
            return json.loads(json.dumps({"value": plain(mx, value)}))
    except Exception as problem:
        return {"error": [kind.__name__ for kind in type(problem).__mro__]}
    finally:
        mx.autograd.set_recording(False)
        mx.autograd.set_training(False)
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
        arguments, states = value.list_arguments(), value.list_auxiliary_states()
        return ["Symbol", value.name, value.list_outputs(), arguments, states]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [plain(mx, each) for each in value]]
    if isinstance(value, dict):
        pairs = sorted(value.items(), key=str)
        return ["dict", [[plain(mx, key), plain(mx, each)] for key, each in pairs]]
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


def main():
    """Ask the real MXNet for every program and store its answers."""
    import nd_programs  # the name by which the other process imports this module
    from oracle import Oracle, OracleError

    answers = {}
    with tempfile.TemporaryDirectory() as folder, Oracle("mxnet") as mxnet:
        os.chdir(folder)  # programs write files
        for program, module in everything().items():
            try:
                answers[program] = mxnet.ask(nd_programs.answer, program, before(module))
            except OracleError as problem:
                print(program, problem, sep="\n")
    lines = [f"{json.dumps(program)}: {json.dumps(told)}" for program, told in answers.items()]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
