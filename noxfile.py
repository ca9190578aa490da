"""The matrix: every version that d2lmini supports, each in an environment of its own.

    make test-all                                 # all of it, and a table: build/matrix.md
    make test-all MATRIXFLAGS="-s tests -p 3.12"  # a part; `nox --list` names the sessions
    make test-all MATRIXFLAGS="-s chapters -- --full"

tests      the library alone, on each Python with the oldest and the newest NumPy: examples, the
           tour, and the tests that a Python or a NumPy is most likely to break (QUICK, or those
           that are named: -- tour autograd); --full: all tests, with all that they need
lab        widgets and one chapter with the oldest and the newest JupyterLab that are allowed
extra      the wheel with one extra at a time, and with none: `d2lmini info`, and all examples
cuda_stub  CuPy itself on stand-ins for CUDA's libraries (`make test-cuda-stub`)
wheel      sdist and wheel are built, the wheel is installed in an empty environment far from the
           tree; there a user's program runs, and all chapters; --quick: one of them

An interpreter, or a compiler, that this machine lacks is no error, but said loudly
(`tests/tools/matrix.py`).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2024.10.9"
nox.options.error_on_missing_interpreters = False
nox.options.reuse_existing_virtualenvs = True

ROOT = Path(__file__).parent
EXAMPLES = str(ROOT / "tests/tools/run_examples.py")
OLDEST, OLDEST_LAB = "tests/oldest.txt", "tests/oldest-lab.txt"
NEWEST = "3.14"

# Python and NumPy. The oldest NumPy has no wheels beyond Python 3.12; on the oldest Python all
# three dependencies are the oldest.
PAIRS = [
    ("3.10", "oldest"), ("3.10", "newest"), ("3.11", "newest"), ("3.12", "oldest"),
    ("3.12", "newest"), ("3.13", "newest"), (NEWEST, "newest"),
]  # fmt: skip

TOOLS = ["pytest>=8.2", "pytest-timeout>=2.3", "hypothesis>=6.100", "pyyaml>=6"]
TOOLS += ["tomli>=2; python_version < '3.11'"]

# What depends on more than the language's core: threads, forks, signals and bytecode, iteration of
# views, how errors are told, files, and NumPy's promotions, ufuncs and strides.
QUICK = """
    tour engine engine_rules engine_processes engine_interrupts waits storage ndarray indexing
    shapes autograd serialize random hybridize trainer gluon_block cli
""".split()


def _python(session: nox.Session, *words: str) -> None:
    """Run Python where the tree is not: what is imported is what was installed."""
    with tempfile.TemporaryDirectory() as elsewhere, session.chdir(elsewhere):
        session.run("python", *words)


def _pytest(session: nox.Session, *words: str) -> None:
    """Run tests of the tree; how many there were is left for the table."""
    report = ROOT / "build" / "matrix" / f"{session.name}.xml"
    session.run("python", "-m", "pytest", "-q", f"--junit-xml={report}", *words)


def _find(name: str) -> list[Path]:
    """The file of the tests of this name."""
    return sorted(ROOT.glob(f"tests/**/test_{name}.py"))


@nox.session
@nox.parametrize("python,numpy", PAIRS, ids=[f"{p}, {n} NumPy" for p, n in PAIRS])
def tests(session: nox.Session, numpy: str) -> None:
    """The library alone, with this Python and this NumPy."""
    full = "--full" in session.posargs
    pins: list[str] = []
    if numpy == "oldest":
        pins = ["-c", OLDEST] if session.python == "3.10" else ["numpy==2.0.0"]
    session.install("-e", ".[lab,test]" if full else ".", *([] if full else TOOLS), *pins)
    if full:
        _pytest(session, "tests")
        return
    _pytest(session, *[str(path) for name in session.posargs or QUICK for path in _find(name)])
    _python(session, EXAMPLES)


@nox.session
@nox.parametrize(
    "python,stack", [("3.10", "oldest"), ("3.12", "newest"), (NEWEST, "newest")],
    ids=["3.10, oldest JupyterLab", "3.12, newest JupyterLab", f"{NEWEST}, newest JupyterLab"],
)  # fmt: skip
def lab(session: nox.Session, stack: str) -> None:
    """Widgets and a chapter with this JupyterLab; `--full`: all chapters."""
    pins = ["-c", OLDEST_LAB] if stack == "oldest" else []
    session.install("-e", ".[lab]", "nbval>=0.11,<0.12", *TOOLS, *pins)
    # What old packages warn of is no defect of ours.
    words = ["-W", "default"] if stack == "oldest" else []
    _pytest(session, *words, "tests/widgets")
    chapters = [] if "--full" in session.posargs else ["start-here"]
    session.run("python", "tests/tools/run_chapters.py", str(ROOT), *chapters)


@nox.session(python="3.12")
@nox.parametrize("extra", ["none", "lab", "dist", "onnx", "bfloat16", "gpu"])
def extra(session: nox.Session, extra: str) -> None:
    """The wheel with one extra, or none: examples of the other extras are left out."""
    if extra == "gpu":  # without [ctk], which brings 2 GB of CUDA: a machine without a GPU
        session.install(".", "cupy-cuda12x>=14,<15")
    else:
        session.install("." if extra == "none" else f".[{extra}]")
    _python(session, "-m", "d2lmini", "info")
    _python(session, EXAMPLES)


@nox.session(python="3.12")
def cuda_stub(session: nox.Session) -> None:
    """CuPy itself without a GPU; it makes an environment of its own."""
    script = str(ROOT / "tests" / "gpu" / "stub" / "run.py")
    python = str(Path(session.bin) / "python")
    status = subprocess.run([python, script, *session.posargs]).returncode
    if status == 77:
        session.skip("what it is built from is not on this machine")
    if status:
        session.error("a check failed")


@nox.session(python=["3.10", "3.12", NEWEST])
def wheel(session: nox.Session) -> None:
    """sdist, then from it the wheel; the wheel in an empty environment, far from the tree."""
    with tempfile.TemporaryDirectory() as made:
        session.run(sys.executable, "-m", "build", "--outdir", made, str(ROOT), external=True)
        (built,) = Path(made).glob("*.whl")
        session.install("--force-reinstall", "--no-deps", str(built))
        session.install(f"d2lmini[lab] @ {built.as_uri()}")
    with tempfile.TemporaryDirectory() as elsewhere, session.chdir(elsewhere):
        session.run("python", EXAMPLES)
        session.run("python", str(ROOT / "tests/tools/users_program.py"))
        session.run("d2lmini", "lab", "--copy", "mine")
        chapters = ["start-here"] if "--quick" in session.posargs else []
        session.run("python", str(ROOT / "tests/tools/run_chapters.py"), "mine", *chapters)
