"""The graph view: what it shows of a Symbol, a net and a Program, and what it costs."""

import json
import threading

import pytest

import d2lmini
from d2lmini import autograd, nd, sym
from d2lmini.base import MXNetError
from d2lmini.gluon import nn
from d2lmini.widgets import graph_view
from d2lmini.widgets.graph_stages import amount


def chain():
    x = sym.var("x")
    return sym.relu(sym.broadcast_add(x * 2 / 1, sym.var("b")), name="y")


def dense_net(n=512):
    net = nn.HybridSequential()
    net.add(nn.Dense(256, activation="relu"), nn.Dropout(0.5), nn.Dense(10))
    net.initialize()
    net.hybridize()
    net(nd.ones((n, 20)))
    return net


def names(stage):
    return [box.lines[0] for box in stage.boxes]


# -- what is shown ---------------------------------------------------------------------------------


def test_a_symbol_with_shapes_is_shown_from_how_it_was_written_to_the_fused_groups():
    (view,) = graph_view(chain(), x=(1000, 1000), b=(1000,)).views
    assert [stage.name for stage in view.stages] == ["as written", "remove_identities", "fused"]
    first, smaller, fused = view.stages
    assert names(first) == ["x", "* 2", "/ 1", "b", "+", "relu"]
    assert [box.lines[0] for box in smaller.boxes if not box.new] == ["x", "* 2", "b", "+", "relu"]
    assert first.boxes[0].lines == ["x", "1000 × 1000"] and first.boxes[-1].output
    (group,) = [box for box in fused.boxes if box.parts]
    assert [part.split(":")[0] for part in group.parts] == ["* 2", "+", "relu"]
    assert group.output and names(fused) == ["x", "b", "3 ops in one pass"]


def test_costs_are_those_of_the_ops_and_a_group_moves_less():
    first, _, fused = graph_view(chain(), x=(1000, 1000), b=(1000,)).views[0].stages
    ops = [(1000, 1000)] * 2
    assert first.cost.nbytes == 4 * (2 * 1e6 + 2 * 1e6 + (2 * 1e6 + 1000) + 2 * 1e6)
    assert fused.cost.nbytes == 4 * (2 * 1e6 + 1000) < first.cost.nbytes / 3
    facts = dict(first.boxes[4].facts)
    expected = d2lmini.ops.core.registry["broadcast_add"].cost([(ops[0], "float32")] * 2)
    assert facts["computes"] == amount(expected.flops, "FLOPs")
    assert facts["gives"] == "1000 × 1000"
    assert "test_widgets_graph_view.py" in facts["line"] and "b" in facts["line"]


def test_a_symbol_without_shapes_is_shown_as_it_was_written():
    view = graph_view(chain()).views[0]
    (stage,) = view.stages
    assert stage.cost is None and str(stage) == "as written: 4 operations"
    assert not any(box.new for box in stage.boxes)


def test_a_symbol_with_shapes_that_do_not_fit_or_names_it_has_not():
    with pytest.raises(MXNetError, match="no variable z"):
        graph_view(chain(), z=(2,))
    with pytest.raises(MXNetError, match="add"):
        graph_view(chain(), x=(2, 3), b=(4,))
    with pytest.raises(TypeError, match="only a Symbol takes shapes"):
        graph_view(dense_net(), x=(2,))
    with pytest.raises(TypeError, match="a Symbol, a hybridized net or a Program, got int"):
        graph_view(3)


def test_a_net_is_shown_for_each_kind_of_call_forward_and_backward():
    net = dense_net()
    with autograd.record():
        y = net(nd.ones((512, 20)))
    y.backward()
    titles = [view.title.partition(", ")[2] for view in graph_view(net).views]
    assert titles == [
        "for data 512 × 20: forward",
        "training, for data 512 × 20: forward",
        "training, for data 512 × 20: backward",
    ]
    forward, training, backward = graph_view(net).views
    assert "Dropout" in names(forward.stages[0]) and "Dropout" not in names(forward.stages[1])
    assert "Dropout" in names(training.stages[-1])
    assert "head_grad0" in names(backward.stages[0])
    assert sum(box.output for box in backward.stages[-1].boxes) == 4  # two weights, two biases


def test_the_last_stage_is_what_the_program_does():
    net = dense_net()
    (program,) = net.program()
    fused = graph_view(net).views[0].stages[-1]
    assert (fused.cost.flops, fused.cost.nbytes) == (program.cost.flops, program.cost.nbytes)
    assert sum(bool(box.parts) for box in fused.boxes) == program.cost.groups
    (alone,) = graph_view(program).views
    assert [str(stage) for stage in alone.stages][-1] == str(fused)


def test_a_net_without_a_graph_is_told_what_to_do():
    net = nn.Dense(3)
    net.initialize()
    net(nd.ones((2, 3)))
    with pytest.raises(MXNetError, match=r"net.hybridize\(\), then call it once"):
        graph_view(net)
    net.hybridize()
    with pytest.raises(MXNetError, match=r"net.hybridize\(\), then call it once"):
        graph_view(net)


def test_what_is_too_large_to_be_looked_at():
    x = sym.var("x")
    for _ in range(151):
        x = sym.exp(x)
    with pytest.raises(MXNetError, match="152 boxes, more than 150"):
        graph_view(x)


@pytest.mark.parametrize("number, words", [(0, "0 B"), (999, "999 B"), (1234, "1.23 kB"),
                                           (4e6, "4 MB"), (2.5e12, "2.5 TB")])  # fmt: skip
def test_amounts(number, words):
    assert amount(number, "B") == words


# -- what the view is sent and what remains --------------------------------------------------------


def test_everything_is_sent_and_goes_through_json():
    whole, buffers = graph_view(dense_net()).whole()
    again = json.loads(json.dumps(whole))
    assert not buffers and len(json.dumps(whole)) < 100_000
    for stage in again["views"][0]["stages"]:
        n = len(stage["boxes"])
        width, height = stage["size"]
        for box in stage["boxes"]:
            assert box["x"] - box["width"] / 2 >= 0 and box["x"] + box["width"] / 2 <= width
            assert box["y"] >= 0 and box["y"] + box["height"] <= height
            assert box["kind"] in again["kinds"]
        for edge in stage["edges"]:
            assert 0 <= edge["from"] < edge["to"] < n
            assert edge["path"].startswith("M") and edge["head"].endswith("z")


def test_boxes_do_not_overlap():
    for view in graph_view(dense_net()).whole()[0]["views"]:
        for stage in view["stages"]:
            boxes = stage["boxes"]
            for i, one in enumerate(boxes):
                for other in boxes[:i]:
                    beside = abs(one["x"] - other["x"]) >= (one["width"] + other["width"]) / 2
                    above = one["y"] + one["height"] <= other["y"]
                    below = other["y"] + other["height"] <= one["y"]
                    assert beside or above or below


def test_the_picture_shows_the_first_and_the_last_stage():
    pytest.importorskip("matplotlib")
    view = graph_view(dense_net())
    svg = view.picture().svg
    assert ">traced: 4 operations" in svg and ">fused: 4 statements" in svg
    assert ">2 ops in one pass<" in svg and ">relu: " in svg
    assert len(view.picture()._repr_png_()[0]) < 150_000
    assert repr(view).splitlines()[1].startswith("  traced: 4 operations, 3.24 MB moved")
    assert view.picture() is view.picture()


def test_a_picture_can_be_kept_in_a_file(tmp_path):
    pytest.importorskip("matplotlib")
    picture = graph_view(chain(), x=(10, 10), b=(10,)).picture()
    picture.save(tmp_path / "graph.svg")
    picture.save(tmp_path / "graph.png")
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8").startswith("<svg")
    assert (tmp_path / "graph.png").read_bytes()[:4] == b"\x89PNG"


def test_looking_changes_nothing_and_nothing_runs():
    net = dense_net()
    before, threads = [str(each) for each in net.program()], threading.active_count()
    view = graph_view(net)
    view.whole()
    assert [str(each) for each in net.program()] == before
    assert threading.active_count() <= threads
    assert graph_view(net).views == view.views
    view.close()
