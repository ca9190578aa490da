"""Programs about names and attributes of Symbols and Blocks, as functions of the library. They
return plain lists, numbers and strings, here and in the real MXNet."""

import importlib
import threading
import warnings


def error(mx, call):
    """The kind of error that a call raises, or its result."""
    try:
        return call()
    except Exception as problem:
        kinds = [kind.__name__ for kind in type(problem).__mro__]
        return next((k for k in kinds if k in ("MXNetError", "NotImplementedForSymbol")), kinds[0])


def in_thread(function):
    """What the function returns in another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


# -- names -----------------------------------------------------------------------------------------


def story_name_managers(mx):
    sym = mx.sym
    x = sym.var("x")
    seen = []
    with mx.name.NameManager():
        seen += [sym.exp(x).name, sym.exp(x).name, sym.log(x).name]
        with mx.name.NameManager():
            seen += [sym.exp(x).name, sym.exp(x, name="e").name]
        seen += [sym.exp(x).name]
        with mx.name.Prefix("p_"):
            seen += [sym.exp(x).name, sym.exp(x, name="e").name, (x + 1).name, sym.var("v").name]
            with mx.name.Prefix("q_") as inner:
                seen += [sym.exp(x).name, inner.get("n", "h"), inner.get(None, "h")]
            seen += [sym.exp(x).name]
            with mx.name.NameManager():
                seen += [sym.exp(x).name]
        seen += [sym.FullyConnected(x, num_hidden=2).list_arguments()]
        with mx.name.Prefix("r_"):
            seen += [sym.FullyConnected(x, num_hidden=2).list_arguments()]
            seen += [sym.FullyConnected(x, num_hidden=2, name="f").list_arguments()]
    return seen


# -- attributes ------------------------------------------------------------------------------------


def story_attribute_scopes(mx):
    sym, seen = mx.sym, []
    with mx.AttrScope(ctx_group="a", __data__="1") as scope:
        seen += [sym.var("v").list_attr(), scope.get({"x": "y"}), scope.get(None)]
        with mx.AttrScope(ctx_group="b", __more__="2"):
            seen += [sym.var("v").list_attr(), sym.exp(sym.var("v")).list_attr()]
            seen.append(sym.var("v", attr={"ctx_group": "own"}).list_attr())
        seen.append(sym.var("v").list_attr())
    seen.append(sym.var("v").list_attr())
    return seen


def story_attributes_are_strings(mx):
    calls = (
        lambda: mx.AttrScope(a=1),
        lambda: mx.AttrScope(a=None),
        lambda: mx.AttrScope(a="1") and "fine",
        lambda: mx.sym.var("v", attr={"a": 1}),
        lambda: mx.sym.var("v")._set_attr(a=1),
        lambda: mx.AttrScope.current.get({"a": 1}),
        lambda: mx.AttrScope("a"),
    )
    return [error(mx, call) for call in calls]


def story_labels_of_layers(mx):
    sym, x, seen = mx.sym, mx.sym.var("x"), []
    for attr in ({"__a__": "1"}, {"lr_mult": "2"}, {"ctx_group": "g"}, {"__lr_mult__": "3"},
                 {"force_mirroring": "True"}, {"__init__": "one"}):  # fmt: skip
        fc = sym.FullyConnected(x, num_hidden=3, name="f", attr=attr)
        seen += [fc.attr_dict(), fc.list_attr()]
    with mx.AttrScope(lr_mult="4", __b__="5"):
        fc = sym.FullyConnected(x, num_hidden=3, name="f", attr={"__a__": "1"})
    seen += [fc.attr_dict(), sym.load_json(fc.tojson()).attr_dict()]
    weight = sym.var("w", lr_mult=0.5, wd_mult=0.0, init=mx.init.One(), shape=(3, 0))
    fc = sym.FullyConnected(x, weight, num_hidden=3, name="f")
    seen += [fc.attr_dict(), sym.load_json(fc.tojson()).attr_dict(), fc.attr("lr_mult")]
    return seen


def story_labels_as_keywords(mx):
    sym, x, seen = mx.sym, mx.sym.var("x"), []
    for words in ({"__a__": "1"}, {"lr_mult": "2"}, {"ctx_group": "g"}, {"lr_mult": 2},
                  {"wd_mult": "3"}, {"force_mirroring": "True"}):  # fmt: skip
        seen.append(sym.exp(x, name="e", **words).list_attr())
        seen.append(sym.FullyConnected(x, num_hidden=2, name="e", **words).attr_dict())
    return seen


# -- names of Blocks -------------------------------------------------------------------------------


def block_names(net):
    """Names and prefixes of a Block and those in it, and of all parameters."""
    found = [net.name, net.prefix, net.params.prefix, list(net.collect_params())]
    for child in net._children.values():
        child = child() if callable(child) and not hasattr(child, "prefix") else child
        found.append([child.name, child.prefix, child.params.prefix])
    return found


def story_blocks(mx):
    nn, seen = mx.gluon.nn, []
    with mx.name.NameManager():
        seen += [
            nn.Dense(1).name,
            nn.Dense(1).name,
            nn.Conv2D(1, 1).name,
            nn.Dense(1, prefix="a_").name,
        ]
        net = nn.HybridSequential()
        with net.name_scope():
            net.add(nn.Dense(2), nn.Dense(2), nn.Dense(1, prefix="own_"), nn.BatchNorm())
        net.add(nn.Dense(1))
        seen.append(block_names(net))
        with net.name_scope():
            net.add(nn.Dense(3))
        seen.append(block_names(net))
        empty = nn.HybridSequential(prefix="")
        with empty.name_scope():
            empty.add(nn.Dense(2), nn.Dense(2, prefix=""))
        seen.append(block_names(empty))
        outer = nn.HybridSequential(prefix="outer_")
        with outer.name_scope():
            middle = nn.HybridSequential(prefix="")
            with middle.name_scope():
                middle.add(nn.Dense(2))
            inner = nn.HybridSequential()
            with inner.name_scope():
                inner.add(nn.Dense(2), nn.Dense(2))
            outer.add(middle, inner, nn.Dense(1))
        seen += [block_names(each) for each in (outer, middle, inner)]
    return seen


def story_shared_parameters(mx):
    nn, seen = mx.gluon.nn, []
    with mx.name.NameManager():
        first = nn.Dense(2, in_units=2)
        second = nn.Dense(2, in_units=2, params=first.params)
        third = nn.Dense(2, in_units=2, params=first.collect_params(), prefix="third_")
        seen += [list(second.collect_params()), list(third.collect_params())]
        seen += [second.params.prefix, third.params.prefix, second.prefix]
        seen += [first.weight is second.weight, first.weight is third.weight]
        net = nn.HybridSequential(params=None, prefix="net_")
        with net.name_scope():
            net.add(nn.Dense(2, in_units=2), nn.Dense(2, in_units=2))
        again = nn.HybridSequential(params=net.params, prefix="again_")
        with again.name_scope():
            again.add(nn.Dense(2, in_units=2), nn.Dense(2, in_units=2))
        seen += [list(again.collect_params()), again[0].weight is net[0].weight, again[0].name]
        shared = nn.HybridSequential(params=net.collect_params(), prefix="net_")
        with shared.name_scope():
            shared.add(nn.Dense(2, in_units=2), nn.Dense(2, in_units=2))
        seen += [shared[1].weight is net[1].weight, list(shared.collect_params())]
    return seen


def story_scopes_in_threads(mx):
    nn = mx.gluon.nn
    with mx.name.NameManager():
        net = nn.HybridSequential(prefix="net_")
        with net.name_scope():
            here = nn.Dense(1).name
            there = in_thread(lambda: nn.Dense(1, prefix="t_").name)
            again = in_thread(lambda: nn.Dense(1).name.split("_")[0][:5])
            after = nn.Dense(1).name
    return [here, there, again, after]


# -- hooks and monitors ----------------------------------------------------------------------------


def story_forward_hooks(mx):
    nn, seen = mx.gluon.nn, []
    with mx.name.NameManager():
        net = nn.HybridSequential(prefix="net_")
        with net.name_scope():
            net.add(nn.Dense(3), nn.Dense(2))
    net.initialize()
    handle = net[0].register_forward_hook(lambda b, i, o: seen.append(["after", b.name, len(i)]))
    net[1].register_forward_pre_hook(lambda b, i: seen.append(["before", b.name, len(i)]))
    net(mx.nd.ones((1, 4)))
    handle.detach()
    net(mx.nd.ones((1, 4)))
    return seen


STORIES = {name[6:]: story for name, story in list(globals().items()) if name.startswith("story_")}


def tell(mx, key):
    """What a library says to a story, 'module:name'; names are counted from 0."""
    module, _, name = key.partition(":")
    manager = getattr(mx.sym, "NameManager", None) or mx.name.NameManager
    with manager(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(module).STORIES[name](mx)
