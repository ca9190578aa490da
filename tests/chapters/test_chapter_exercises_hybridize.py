"""The exercises of the chapter on hybridizing: its solutions pass its own checks, and each typical
wrong answer gets a hint of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from chapter_cells import hint_of

from d2lmini import nd, sym
from d2lmini.gluon import nn
from d2lmini.graph.ir import topological, transform
from d2lmini.graph.passes.rewrite import rewritten

PATH = Path(__file__).parents[2] / "chapters" / "01-hybridize.ipynb"


@pytest.fixture(scope="module")
def sources() -> dict[str, list[str]]:
    cells = json.loads(PATH.read_text(encoding="utf-8"))["cells"]
    return {
        kind: ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]
        for kind in ("code", "markdown")
    }


@pytest.fixture(scope="module")
def chapter(sources) -> dict[str, Any]:
    """The names of the chapter's imports, of its checks, of the model that exercise 7 is about, and
    of the answers in its folds."""
    text = "\n".join(sources["markdown"])
    place: dict[str, Any] = {}
    exec(sources["code"][0], place)
    for cell in sources["code"]:
        if cell.startswith(("def as_earlier", "def check_", "def values_of")):
            exec(cell, place)
    earlier = re.findall(r"```python\n(class Earlier.*?)```", text, re.S)
    folds = re.findall(r"<details>.*?</details>", text, re.S)
    for block in [*earlier, *re.findall(r"```python\n(.*?)```", "\n".join(folds), re.S)]:
        exec(block, place)
    return place


# -- exercise 7: an earlier model ------------------------------------------------------------------


class Layers(nn.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = nn.Dense(16, activation="relu")
        self.output = nn.Dense(4)


class ReadsTheLength(Layers):
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        length = F.norm(h).asscalar()
        return self.output(h / length if length > 1 else h)


class BranchesOnIt(Layers):
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        if F.norm(h) > 1:
            h = F.broadcast_div(h, F.norm(h))
        return self.output(h)


class ForArraysOnly(Layers):
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        if F is nd and F.norm(h).asscalar() > 1:
            h = F.broadcast_div(h, F.norm(h))
        return self.output(h)


class AlwaysDivides(Layers):
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        return self.output(F.broadcast_div(h, F.norm(h)))


class WithAnArray(Layers):
    """Right as well: an array that is made in the trace is a constant."""

    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        return self.output(F.broadcast_div(h, F.broadcast_maximum(F.norm(h), nd.ones((1,)))))


class Unusual(Layers):
    """Also right: a plain forward, and the length from a sum of squares."""

    def forward(self, x):
        h = self.hidden(x)
        length = (h * h).sum().sqrt()
        return self.output(nd.broadcast_div(h, nd.broadcast_maximum(length, nd.ones((1,)))))


class OutputFirst(nn.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.last = nn.Dense(4)
        self.first = nn.HybridSequential()
        self.first.add(nn.Dense(16), nn.Activation("relu"))

    def hybrid_forward(self, F, x):
        h = self.first(x)
        length = F.norm(h).clip(1, 1e30)
        return self.last(F.broadcast_div(h, length))


class ByWhere(Layers):
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        length = F.norm(h)
        divisor = F.where(length > 1, length, F.ones((1,)))
        return self.output(F.broadcast_div(h, divisor))


class OwnParameters(nn.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            for name, shape in {"a": (16, 8), "b": (16,), "c": (4, 16), "d": (4,)}.items():
                init = "zeros" if len(shape) == 1 else None
                setattr(self, name, self.params.get(name, shape=shape, init=init))

    def hybrid_forward(self, F, x, a, b, c, d):
        h = F.relu(F.FullyConnected(x, a, b, num_hidden=16))
        h = F.broadcast_mul(h, 1 / F.maximum(F.norm(h), 1))
        return F.FullyConnected(h, c, d, num_hidden=4)


class RowByRow(Layers):
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        return self.output(F.broadcast_div(h, F.maximum(F.norm(h, axis=1, keepdims=True), 1)))


class DoesNothing(Layers):
    def hybrid_forward(self, F, x):
        """Returns None."""


class OtherSizes(nn.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden, self.output = nn.Dense(12, activation="relu"), nn.Dense(4)

    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        return self.output(F.broadcast_div(h, F.maximum(F.norm(h), 1)))


class Misspelt(Layers):
    def hybrid_forward(self, F, x):
        return self.output(F.broadcast_div(self.hidden(x), lenght))  # noqa: F821


class InCall(Layers):
    def __call__(self, x):
        h = self.hidden(x)
        return self.output(nd.broadcast_div(h, nd.maximum(nd.norm(h), 1)))


class OneLayer(nn.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.output = nn.Dense(4)

    def hybrid_forward(self, F, x):
        return self.output(F.broadcast_div(x, F.maximum(F.norm(x), 1)))


def test_the_converted_model_is_right(chapter, capsys):
    chapter["check_converted"](chapter["Converted"])
    assert capsys.readouterr().out == "at most 0 waits in all\na call is one operation\n"


@pytest.mark.parametrize(
    "answer", [WithAnArray, Unusual, OutputFirst, ByWhere, OwnParameters], ids=lambda a: a.__name__
)
def test_an_unusual_right_model_passes(chapter, answer, capsys):
    chapter["check_converted"](answer)
    assert capsys.readouterr().out.endswith("a call is one operation\n")


def test_an_error_in_a_model_is_raised_as_it_is(chapter):
    with pytest.raises(NameError, match="lenght"):
        chapter["check_converted"](Misspelt)


def test_the_values_asked_for_are_those_of_the_earlier_model(chapter):
    net = chapter["Earlier"]()
    net.initialize(chapter["d2lmini"].init.Xavier())
    net(nd.ones((3, 8)))
    chapter["check_values"](net, "values", "the check computes something else")


def test_every_mistake_has_its_hint(chapter):
    answers = (
        chapter["Earlier"], ReadsTheLength, ForArraysOnly, AlwaysDivides, InCall, OneLayer,
        RowByRow, DoesNothing, OtherSizes,
    )  # fmt: skip
    hints = {each.__name__: hint_of(chapter["check_converted"], each) for each in answers}
    assert hints == {
        "Earlier": "block",
        "ReadsTheLength": "contents",
        "ForArraysOnly": "branch",
        "AlwaysDivides": "values",
        "InCall": "operations",
        "OneLayer": "parameters",
        "RowByRow": "values",
        "DoesNothing": "none",
        "OtherSizes": "parameters",
    }
    assert hint_of(chapter["check_converted"], lambda: None) == "block"
    assert hint_of(chapter["check_converted"], BranchesOnIt) == "contents"


# -- exercise 8: a pass ----------------------------------------------------------------------------


def named(node, name: str) -> bool:
    return node.op is not None and node.op.name == name


def does_nothing(outputs):
    return list(outputs)


def removes_all(outputs):
    return rewritten(outputs, lambda node: node.inputs[0] if named(node, "relu") else None)


def skips_both(outputs):
    def rule(node):
        inner = node.inputs[0][0] if named(node, "relu") else node
        return inner.inputs[0] if inner is not node and named(inner, "relu") else None

    return rewritten(outputs, rule)


def sees_outputs_only(outputs):
    found = []
    for node, i in outputs:
        if named(node, "relu") and named(node.inputs[0][0], "relu"):
            node, i = node.inputs[0]
        found.append((node, i))
    return found


def once_only(outputs):
    pairs = {
        node.name
        for node in topological(outputs)
        if named(node, "relu")
        and named(node.inputs[0][0], "relu")
        and not named(node.inputs[0][0].inputs[0][0], "relu")
    }
    return rewritten(outputs, lambda node: node.inputs[0] if node.name in pairs else None)


def any_pair(outputs):
    def rule(node):
        same = node.inputs and named(node.inputs[0][0], node.op.name)
        return node.inputs[0] if same else None

    return rewritten(outputs, rule)


def first_output(chapter):
    def answer(outputs):
        return chapter["relu_once"](outputs)[:1]

    return answer


def by_recursion(outputs):
    """Unusual, and right: new nodes from the outputs down."""
    new = {}

    def renewed(node):
        if node not in new:
            inputs = tuple((renewed(source), i) for source, i in node.inputs)
            twice = named(node, "relu") and named(inputs[0][0], "relu")
            new[node] = inputs[0][0] if twice else node.replace(inputs=inputs)
        return new[node]

    return [(renewed(node), i) for node, i in outputs]


def by_transform(outputs):
    def rule(node, inputs):
        return [inputs[0]] if named(node, "relu") and named(inputs[0][0], "relu") else None

    return tuple(transform(outputs, rule))


def until_nothing_changes(outputs):
    while True:
        pairs = [n for n in topological(outputs) if named(n, "relu")]
        pair = next((n for n in pairs if named(n.inputs[0][0], "relu")), None)
        if pair is None:
            return outputs
        outputs = transform(outputs, given={(pair, 0): pair.inputs[0]})


def keeps_the_outer(outputs):
    """The outer of two stays, and reads what the inner one read."""

    def rule(node, inputs):
        if named(node, "relu") and named(inputs[0][0], "relu"):
            return node.replace(inputs=inputs[0][0].inputs)
        return None

    return transform(outputs, rule)


def as_a_generator(outputs):
    yield from by_transform(outputs)


@pytest.mark.parametrize(
    "answer",
    [by_recursion, by_transform, until_nothing_changes, keeps_the_outer, as_a_generator],
)
def test_an_unusual_right_pass(chapter, answer, capsys):
    chapter["check_pass"](answer)
    assert capsys.readouterr().out.startswith("right")


def swaps_outputs(chapter):
    return lambda outputs: chapter["relu_once"](outputs)[::-1]


def test_an_error_in_a_pass_is_raised_as_it_is(chapter):
    with pytest.raises(NameError, match="rewriten"):
        chapter["check_pass"](lambda outputs: rewriten(outputs))  # noqa: F821


def test_the_pass_is_right(chapter, capsys):
    chapter["check_pass"](chapter["relu_once"])
    assert capsys.readouterr().out.startswith("right: one relu is left")


def test_every_mistake_of_a_pass_has_its_hint(chapter):
    answers = {
        "does nothing": does_nothing,
        "removes all": removes_all,
        "skips both": skips_both,
        "sees outputs only": sees_outputs_only,
        "once only": once_only,
        "any pair": any_pair,
        "first output": first_output(chapter),
        "swaps outputs": swaps_outputs(chapter),
        "returns nothing": lambda outputs: None,
    }
    hints = {name: hint_of(chapter["check_pass"], each) for name, each in answers.items()}
    assert hints == {
        "does nothing": "nothing",
        "removes all": "removed",
        "skips both": "both",
        "sees outputs only": "deep",
        "once only": "again",
        "any pair": "others",
        "first output": "outputs",
        "swaps outputs": "values",
        "returns nothing": "none",
    }


# -- what the folded answers say -------------------------------------------------------------------


def test_an_array_beside_a_symbol_is_refused():
    """Break it, 5."""

    class Sum(nn.HybridBlock):
        def hybrid_forward(self, F, x, y):
            return F.broadcast_add(x, y)

    net = Sum()
    net.hybridize()
    with pytest.raises(ValueError, match="mixed NDArrays and Symbols"):
        net(nd.ones((2,)), sym.var("y"))


def test_a_plain_forward_is_exported_for_the_shapes_that_it_saw(tmp_path):
    """Break it, 6."""

    class Mean(nn.HybridBlock):
        def forward(self, x):
            return x.sum() / x.shape[0]

    net = Mean()
    net.hybridize()
    net(nd.ones((4,)))
    net.export(str(tmp_path / "mean"))
    text = (tmp_path / "mean-symbol.json").read_text(encoding="utf-8")
    assert re.search(r'"_div_scalar".*"scalar": "4', text)


def test_a_program_of_forty_operations_is_one(sources):
    """Predict, 4: so much bookkeeping is taken away."""
    net = nn.HybridSequential()
    net.add(*(nn.Dense(8, activation="tanh") for _ in range(20)))
    net.initialize()
    y = net(nd.ones((1, 8)))
    net.hybridize()
    assert (net(nd.ones((1, 8))) - y).abs().max().asscalar() < 1e-5
    assert len(net.program()) == 1


def test_the_first_cell_only_imports(sources):
    assert all(
        line.startswith(("import ", "from ", "    ", ")")) or not line
        for line in sources["code"][0].splitlines()
    )
