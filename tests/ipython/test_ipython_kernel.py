"""What a student sees in Jupyter: short tracebacks, pending work after Stop, help and completion.

The cells run in a real IPython kernel, and the texts are those that the front end gets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("ipykernel")
manager = pytest.importorskip("jupyter_client.manager")

TIMEOUT_S = 120


class Kernel:
    """An IPython kernel; `run` gives the texts that a cell shows."""

    def __init__(self) -> None:
        self.process, self.client = manager.start_new_kernel(kernel_name="python3")
        self.cells = 0

    def run(self, code: str, on_output: Callable[[str], object] = lambda text: None) -> str:
        """Run a cell; returns all it shows, without colours. `on_output` gets each text at once."""
        shown: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            kind = message["msg_type"]
            if kind == "stream":
                shown.append(content["text"])
            elif kind == "error":
                shown.append("\n".join(content["traceback"]))
            elif kind == "execute_result":
                shown.append(content["data"]["text/plain"])
            else:
                return
            on_output(shown[-1])

        self.client.execute_interactive(code, output_hook=hear, timeout=TIMEOUT_S)
        self.cells += 1
        return plain("".join(shown))

    def help(self, code: str, detail: int = 0) -> str:
        """What `code?` shows; with detail=1 what `code??` shows."""
        reply = self.client.inspect(code, detail_level=detail, reply=True, timeout=TIMEOUT_S)
        return plain(reply["content"]["data"]["text/plain"])

    def complete(self, code: str) -> list[str]:
        """What Tab offers behind `code`."""
        reply = self.client.complete(code, reply=True, timeout=TIMEOUT_S)
        return reply["content"]["matches"]


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    kernel.run(
        "import threading\n"
        "import d2lmini as mx\n"
        "from d2lmini import autograd, engine, gluon, nd, sym\n"
        "from d2lmini.gluon import nn\n"
        "x, y = nd.ones((2, 3)), nd.ones((4, 5))"
    )
    yield kernel
    kernel.client.stop_channels()
    kernel.process.shutdown_kernel(now=True)


# -- tracebacks ------------------------------------------------------------------------------------

RULE = "-" * 75
HEADER = "Traceback (without d2lmini's frames: %xmode --show)"


def test_a_shape_mismatch_shows_the_line_and_the_message(kernel: Kernel):
    shown = kernel.run("z = nd.dot(x, x.T)\nnd.dot(x, y)")
    assert [line.strip() for line in shown.splitlines()] == [
        RULE,
        "MXNetError" + " " * 32 + HEADER,
        f"Cell In[{kernel.cells}], line 2",
        "1 z = nd.dot(x, x.T)",
        "----> 2 nd.dot(x, y)",
        "",
        "MXNetError: dot: inner sizes differ: a is (2, 3), b is (4, 5), need a.shape[-1] == "
        "b.shape[0]",
    ]


def test_causes_are_short_too(kernel: Kernel):
    shown = kernel.run("try:\n    nd.dot(x, y)\nexcept mx.MXNetError:\n    1 / 0")
    assert "During handling of the above exception" in shown
    assert "ZeroDivisionError: division by zero" in shown and "d2lmini/" not in shown


# -- Stop ------------------------------------------------------------------------------------------

DOOR = """\
door = threading.Event()
a = nd.zeros((2,))
engine.push(door.wait, writes=[a], name="door")
b = a * 2
for _ in range(2):
    b = b + 1
print("ready")
b.asnumpy()
"""


SCOPE = """\
with mx.{scope}() as record:
    door = threading.Event()
    done = []
    a = engine.new_var()
    engine.push(door.wait, writes=[a], name="door")
    for k in range(20):
        engine.push(lambda: done.append(1), writes=[a])
    print("ready")
    engine.wait_for_var(a)
"""


@pytest.mark.parametrize("scope", ["profile", "watch"])
def test_one_stop_ends_a_cell_that_is_recorded(kernel: Kernel, scope: str):
    def stop(text: str) -> None:
        if text.startswith("ready"):
            kernel.process.interrupt_kernel()

    shown = kernel.run(SCOPE.format(scope=scope), stop)
    assert "KeyboardInterrupt" in shown and "20 operations still queued" in shown
    assert kernel.run("len(done), sum(not operation.ran for operation in record.operations)") == (
        "(0, 21)" if scope == "profile" else "(0, 0)"
    )
    assert kernel.run("door.set(); nd.waitall(); len(done)") == "20"


def test_stop_says_what_is_queued_and_nothing_hangs_afterwards(kernel: Kernel):
    def stop(text: str) -> None:
        if text.startswith("ready"):
            kernel.process.interrupt_kernel()

    for times in range(1, 5):  # more often than there are workers
        shown = kernel.run(DOOR, stop)
        line = f'In [{kernel.cells}], line 3: engine.push(door.wait, writes=[a], name="door")'
        running = [f"door (issued at {line})"] * times  # equal cells have the name of the last
        said = shown.splitlines()
        assert said[said.index("KeyboardInterrupt: ") + 1 :] == [
            "d2lmini: 3 operations still queued; engine.cancel_pending() drops them",
            *[f"d2lmini: still running: {task}" for task in running],
        ]
        assert kernel.run("engine.cancel_pending()").splitlines() == [
            *[
                f"d2lmini: {task} is running and cannot be stopped; waitall() waits for it"
                for task in running
            ],
            "3",
        ]
        assert "_plus_scalar: cancelled before it ran" in kernel.run("b.asnumpy()")
        assert kernel.run("nd.dot(nd.ones((300, 300)), nd.ones((300, 1)))[0].asscalar()") == (
            "np.float32(300.0)"
        )
        kernel.run("doors = [*globals().get('doors', []), door]")
    shown = kernel.run("print('ready')\nnd.waitall()", stop)
    assert shown.count("d2lmini: still running: door") == 4 and "queued" not in shown
    assert kernel.run("for door in doors: door.set()\nnd.waitall()\nengine.stats().pending") == "0"


# -- help ------------------------------------------------------------------------------------------


def test_help_on_an_operator(kernel: Kernel):
    shown = kernel.help("nd.dot")
    assert "nd.dot(\n    lhs,\n    rhs,\n    transpose_a=False," in shown
    assert "(M, K) x (K, N) -> (M, N)" in shown and ">>> nd.dot(" in shown
    assert "Class docstring" not in shown and "Call signature" not in shown


def test_help_shows_the_source_of_the_operator(kernel: Kernel):
    shown = kernel.help("nd.dot", detail=1)
    assert "@op(infer=_infer_dot, flops=partial(_flops_product, axis=0))\ndef dot(" in shown
    assert "@composed" in kernel.help("nd.L2Normalization", detail=1)
    assert "Class docstring" not in kernel.help("nd.ones_like")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("nd.dott", "nd has no 'dott'; did you mean 'dot'?"),
        ("nd.linalg.gem", "nd.linalg has no 'gem'; did you mean 'gemm2'?"),
        ("nd.nothing", "nd has no 'nothing'; dir(nd) lists the names"),
        ("sym.x", "sym has no 'x'; dir(sym) lists the names"),
        ("sym.convolution", "sym has no 'convolution'; did you mean 'Convolution' or "),
        ("gluon.Trainr", "gluon has no 'Trainr'; did you mean 'Trainer'?"),
        ("mx.gluo", "d2lmini has no 'gluo'; did you mean 'gluon'?"),
        ("nn.Dens", "module 'd2lmini.gluon.nn' has no attribute 'Dens'\ndid you mean 'Dense'?"),
        ("x.reshap", "'NDArray' object has no attribute 'reshap'\ndid you mean 'reshape'?"),
        ("(1).imagg", "'int' object has no attribute 'imagg'"),
    ],
)
def test_a_missing_name(kernel: Kernel, code: str, text: str):
    assert f"AttributeError: {text}" in kernel.run(code)
