"""What every test gets: a quiet engine at its end, a context, both engines, Hypothesis' profiles.

Warnings are errors and every test has 120 seconds (`pyproject.toml`).

- `D2LMINI_TEST_CTX="cpu(0) gpu(0)"` chooses the contexts that the fixture `ctx` runs through. If a
  gpu is among them it is that of this machine, or of the fake with `D2LMINI_TEST_FAKE_CUDA=1`;
  otherwise no test sees GPUs but those that it makes (`tools/gpu_kinds.py`).
- `D2LMINI_MXNET_PYTHON=PATH` names an interpreter that has MXNet 1.9.1 and NumPy 1.23.5, for the
  tests that take the fixture `mxnet` (`make test-mxnet`).
- `HYPOTHESIS_PROFILE=thorough` draws twenty times as many examples, other ones in each run.
- `D2LMINI_CHECK_MEMORY=1` runs the tests under the memory checker (`tools/check_memory.py`).
- `D2LMINI_TEST_ROW=TEXT` runs only the rows of tables whose name contains it (`tools/rows.py`).
- `--sample N` runs one in N of the tests marked `law`, as `make unit` does: each commit has its
  part of them, so that N commits have all.
"""

import gc
import os
import re
import signal
import subprocess
import sys
import zlib

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("MPLBACKEND", "Agg")

# No deadline: on a shared machine it measures the neighbours. "ci" draws the same examples in each
# run, so that a commit passes or fails; "thorough" draws anew, and a failure prints the line that
# reproduces it. The fixtures used beside @given here are values and modes, the same for all
# examples.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", parent=settings.get_profile("ci"), derandomize=False, max_examples=2000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if os.environ.get("D2LMINI_CHECK_MEMORY") == "1":
    import check_memory

    check_memory.turn_on()

# What a shell starts in the background ignores Ctrl-C, and so do its children; tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _context(name: str):
    """The Context that "cpu(0)" names."""
    import d2lmini

    match = re.fullmatch(r"(cpu|gpu)\((\d+)\)", name)
    if match is None:
        raise ValueError(f"D2LMINI_TEST_CTX: expected names such as cpu(0) or gpu(1), got {name!r}")
    return d2lmini.Context(match[1], int(match[2]))


@pytest.fixture(scope="session", params=os.environ.get("D2LMINI_TEST_CTX", "cpu(0)").split())
def ctx(request):
    """The context to compute on."""
    return _context(request.param)


@pytest.fixture(scope="session", autouse=True)
def gpus_of_this_machine():
    """Which GPUs there are for the tests that make none: see this module."""
    from gpu_kinds import using

    try:
        without_gpus = using(None)
    except ModuleNotFoundError:  # as `test_addons.py` has it
        yield
        return
    if os.environ.get("D2LMINI_TEST_FAKE_CUDA"):
        from fakes.cuda import fake_cuda

        with fake_cuda(2) as cupy, using(cupy):
            yield
            sys.modules["d2lmini.engine"].waitall()
    elif "gpu" in os.environ.get("D2LMINI_TEST_CTX", ""):
        yield
    else:
        with without_gpus:
            yield


@pytest.fixture(params=os.environ.get("D2LMINI_TEST_GPUS", "virtual fake cuda").split())
def gpu_kind(request):
    """Of which kind the GPUs are that the test makes: see `tools/gpu_kinds.py`."""
    return request.param


@pytest.fixture(scope="module")
def mxnet():
    """The real MXNet, in a process of this test file's own; see `tools/oracle.py`."""
    from oracle import Oracle

    with Oracle("mxnet") as oracle:
        if not oracle.python:
            pytest.skip("D2LMINI_MXNET_PYTHON names no interpreter")
        yield oracle


@pytest.fixture
def cupy():
    """A CuPy with two GPUs of 256 MB: the fake."""
    from fakes.cuda import fake_cuda
    from gpu_kinds import using

    with fake_cuda(2, seed=3) as fake, using(fake):
        yield fake


@pytest.fixture
def gpus(cupy):
    """The same two, as devices; what was lost on them is forgotten in the end."""
    from gpu_kinds import logical_gpus

    from d2lmini import engine

    with logical_gpus(2) as contexts:
        yield contexts
        engine.waitall()
        cupy.machine.lost.clear()


@pytest.fixture
def no_gc_callbacks():
    """Hypothesis times the collector with a callback; a signal that strikes in there is lost."""
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks.extend(callbacks)


@pytest.fixture
def frozen_heap():
    """What other tests left behind costs no time of the collector: for tests of what costs time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["threaded", "naive"])
def engine_kind(request):
    """Runs the test on the threaded engine and on its serial twin."""
    from d2lmini import engine

    with engine.use(request.param):
        yield request.param
        engine.waitall()


def pytest_addoption(parser):
    parser.addoption(
        "--sample", type=int, default=1, metavar="N", help="one in N of each law's rows"
    )


def pytest_collection_modifyitems(config, items):
    """Leave out, of each law's rows, those that are another commit's part."""
    parts = config.getoption("sample")
    if parts == 1:
        return
    command = ["git", "rev-list", "--count", "HEAD"]
    try:
        counted = subprocess.run(command, cwd=config.rootpath, capture_output=True, text=True)
        part = int(counted.stdout or 0) % parts
    except OSError:  # no git
        part = 0
    runs = [
        item.get_closest_marker("law") is None or zlib.crc32(item.nodeid.encode()) % parts == part
        for item in items
    ]
    config.hook.pytest_deselected(items=[i for i, run in zip(items, runs, strict=True) if not run])
    items[:] = [item for item, run in zip(items, runs, strict=True) if run]


def pytest_collection_finish(session):
    """What was collected, tens of thousands of tests, stays to the end: the collector need not look
    at it again and again. (With it a collection takes a second, in a test that asks for hundreds.)
    """
    gc.collect()
    gc.freeze()


_hung = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test that ran out of time is the last: what it left in the engine would hang the rest. One
    whose GPU kernels nobody could compile, for there is no g++, was not run."""
    report = yield
    fake = sys.modules.get("fakes.cuda_cpp")
    if report.failed and fake is not None and fake.missed:
        where = str(item.path), item.location[1] or 0
        report.outcome = "skipped"
        report.longrepr = (*where, f"there is no g++ to compile {fake.missed[0]} with")
    if fake is not None and call.when == "teardown":
        fake.missed.clear()
    if call.excinfo is not None and "from pytest-timeout" in str(call.excinfo.value):
        item.stash[_hung] = True
        item.session.shouldstop = f"{item.nodeid} hung; its threads are shown above"
    return report


def pytest_terminal_summary(terminalreporter):
    """What `tools/rows.py` has to say of the rows that were skipped."""
    from rows import summary

    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    for line in summary(reports, terminalreporter.verbosity > 0):
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def quiet_engine(request):
    """After every test nothing is pending, no error waits to be reported, and the memory checker,
    if it is on, finds no fault."""
    yield
    engine = sys.modules.get("d2lmini.engine")
    if engine is not None and not request.node.stash.get(_hung, False):
        engine.waitall()
        assert engine.stats().pending == 0, "the test left tasks behind"
        check_memory = sys.modules.get("check_memory")
        if check_memory is not None:
            check_memory.verify()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "Ctrl-C was redirected"
