"""The graphs of nets, driven alike in d2lmini and in the real MXNet: for each expression that
builds one, what its Symbol lists. Run by an interpreter that has MXNet:

    python graph_names.py < BUILDS.json > ANSWERS.json
"""

import json
import sys


def names(mx):
    """What the expressions may use."""
    return {"mx": mx, "nd": mx.nd, "nn": mx.gluon.nn, "rnn": mx.gluon.rnn, "loss": mx.gluon.loss,
            "gluon": mx.gluon, "joined": joined}  # fmt: skip


def joined(net, *children):
    for child in children:
        net.add(child)
    return net


def lists(mx, build, call):
    """Arguments, auxiliary states, all values inside and labels of a net's Symbol; or the error."""
    with (getattr(mx.sym, "NameManager", None) or mx.name.NameManager)():
        try:
            net = eval(build, names(mx))
            result = eval(call, dict(names(mx), net=net, x=mx.sym.var("x"), label=mx.sym.var("l")))
            y = mx.sym.Group(flat(result))
            labels = {
                name: {k: v for k, v in some.items() if k.startswith("__") and "init" not in k}
                for name, some in y.attr_dict().items()
            }
            return {
                "arguments": y.list_arguments(),
                "auxiliary": y.list_auxiliary_states(),
                "inside": y.get_internals().list_outputs(),
                "labels": {name: some for name, some in labels.items() if some},
            }
        except Exception as error:
            return {"error": type(error).__name__, "text": str(error)[:300]}


def flat(value):
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in flat(part)]
    return [value]


if __name__ == "__main__":
    import mxnet

    json.dump([lists(mxnet, *each) for each in json.load(sys.stdin)], sys.stdout)
