"""What the Symbols of nets list, driven alike in d2lmini and in the real MXNet, which both import
this module."""

from gluon_rows.peer import flat, names


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
