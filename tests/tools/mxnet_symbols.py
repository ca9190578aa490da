"""Reads and writes Symbols in the real MXNet: a program for an interpreter that has it.

Pickled rows come on stdin, pickled answers go to stdout; arrays travel as in `mxnet_oracle`. A row
is a dict:

    text     a Symbol's JSON: it is loaded and run on `values`
    values   variable -> array, arguments and auxiliary states
    op       with it, the same call is written down by MXNet itself: (name, variables, attributes)

The answer holds the outputs, `text` as MXNet writes it again and, with `op`, what it wrote for
that; or, as a text, the error.
"""

import os
import pickle
import sys

import mxnet as mx
from mxnet_oracle import decode


def main():
    """Answer the rows on stdin, one by one."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for row in pickle.load(sys.stdin.buffer):
        try:
            answer = run(row)
            mx.nd.waitall()  # an error that nobody waited for belongs to this row
        except Exception as problem:
            answer = f"{type(problem).__name__}: {str(problem)[:400]}"
        pickle.dump(answer, answers, 2)
        answers.flush()


def run(row):
    values = {name: decode(array) for name, array in row["values"].items()}
    shapes = [v.shape for v in values.values()]
    with mx.util.np_shape(any(s == () or 0 in s for s in shapes)):
        symbol = mx.sym.load_json(row["text"])
        answer = {
            "outputs": outputs(symbol, values),
            "again": symbol.tojson(remove_amp_cast=False),
            "written": None,
        }
        if row["op"]:
            name, variables, attrs = row["op"]
            made = find(name)(*[mx.sym.var(v) for v in variables], **attrs)
            answer["written"] = made.tojson(remove_amp_cast=False)
    return answer


def outputs(symbol, values):
    """The Symbol bound to the values and run in predict mode."""
    args = {k: values[k] for k in symbol.list_arguments()}
    aux = {k: values[k] for k in symbol.list_auxiliary_states()}
    executor = symbol.bind(mx.cpu(), args, aux_states=aux, grad_req="null")
    results = executor.forward(is_train=False)
    return [("array", o.dtype.__name__, o.shape, o.asnumpy().tobytes()) for o in results]


def find(name):
    from mxnet import sym

    for space in (sym, sym._internal, sym.contrib, sym.linalg):
        if hasattr(space, name):
            return getattr(space, name)
    raise LookupError(f"MXNet has no {name}")


if __name__ == "__main__":
    main()
