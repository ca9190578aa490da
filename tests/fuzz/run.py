"""Feed hostile files to every reader of d2lmini: the long run behind docs/tried.md.

    python tests/fuzz/run.py                                  # all targets, 20 000 inputs each
    python tests/fuzz/run.py --inputs 100000 params symbol    # these, more
    python tests/fuzz/run.py --engine atheris states          # guided (pip install atheris)
    python tests/fuzz/run.py --engine hypothesis --seed 3

Three engines make the inputs, all with the mutations that know the formats: `random` takes each
from a valid file; `hypothesis` lets Hypothesis make the choices; `atheris` keeps the inputs that
reach lines of the readers not reached before, and goes on from those. Prints a row for each target
and each failure once, with the bytes that led to it; the exit status is 1 if there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parent.parent.parent

#: Modules whose lines guide Atheris.
READERS = (
    "d2l.data", "d2l.text", "gluon.data.vision.datasets", "gluon.data.vision.idx",
    "gluon.structure", "gluon.utils", "initializer", "metric.base", "mxnet_alias.runner",
    "ndarray.exchange", "ops.attributes", "optimizer.restore", "optimizer.updater", "serialize",
    "symbol",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", help="names; all if none is given")
    parser.add_argument("--inputs", type=int, default=20_000, help="for each target")
    parser.add_argument("--engine", choices=("random", "hypothesis", "atheris"), default="random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
    if options.engine == "atheris":
        if not options.child:
            return _each_in_its_process(options)
        import atheris

        with atheris.instrument_imports(include=[f"d2lmini.{name}" for name in READERS]):
            import targets
    else:
        import targets
    failed = False
    for name in options.targets or targets.TARGETS:
        if name not in targets.TARGETS:
            parser.error(f"no target {name!r}; there are {', '.join(targets.TARGETS)}")
        began = time.perf_counter()
        with open(os.devnull, "w") as nowhere, _quiet(nowhere), targets.Run(name) as run:
            drive = {"random": _random, "hypothesis": _hypothesis, "atheris": _atheris}
            report = functools.partial(_report, name, run, began)
            drive[options.engine](run, options.inputs, options.seed, report)
        failed |= _report(name, run, began)
    return int(failed)


@contextlib.contextmanager
def _quiet(nowhere: Any) -> Any:
    """Readers that print their progress do so elsewhere; warnings are not counted."""
    with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield


def _report(name: str, run: Any, began: float) -> bool:
    took = time.perf_counter() - began
    rate = run.inputs / took
    out = sys.__stdout__
    print(f"{name:10} {run.inputs:8} inputs {rate:8.0f}/s {len(run.failures):3} failures", file=out)
    for kind, (words, data) in sorted(run.failures.items()):
        print(f"    {kind}: {words}\n        {data[:400]!r} ({len(data)} bytes)", file=out)
    out.flush()  # type: ignore[union-attr]
    return bool(run.failures)


def _random(run: Any, inputs: int, seed: int, report: Any) -> None:
    random, target = Random(seed), run.target
    for _ in range(inputs):
        data = target.mutate(random, random.choice(target.seeds), target.seeds)
        run.feed(data)


def _hypothesis(run: Any, inputs: int, seed: int, report: Any) -> None:
    import hypothesis
    from hypothesis import strategies as st

    target = run.target

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=inputs, database=None, deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck), phases=[hypothesis.Phase.generate],
    )  # fmt: skip
    @hypothesis.given(st.sampled_from(target.seeds), st.randoms(use_true_random=False))
    def one(valid: bytes, random: Random) -> None:
        data = target.mutate(random, valid, target.seeds)
        run.feed(data)

    one()


def _atheris(run: Any, inputs: int, seed: int, report: Any) -> None:
    import atheris

    target = run.target

    def one(data: bytes) -> None:
        run.feed(data)
        if run.inputs == inputs:
            failed = report()
            sys.__stdout__.flush()  # type: ignore[union-attr]
            os._exit(int(failed))

    def mutate(data: bytes, most: int, number: int) -> bytes:
        random = Random(number)
        if random.random() < 0.3:
            return atheris.Mutate(data, most)
        return target.mutate(random, data, target.seeds)[:most]

    corpus = Path(run.folder).parent / "corpus"
    corpus.mkdir()
    for i, valid in enumerate(target.seeds):
        (corpus / str(i)).write_bytes(valid)
    flags = [f"-seed={seed}", "-max_len=8192", "-runs=-1", "-verbosity=0", "-rss_limit_mb=0"]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], one, custom_mutator=mutate)
    atheris.Fuzz()


def _each_in_its_process(options: Any) -> int:
    """Atheris never comes back from its loop: a process for each target."""
    sys.path.insert(0, str(Path(__file__).parent))
    import targets

    status = 0
    for name in options.targets or targets.TARGETS:
        command = [sys.executable, __file__, "--child", "--engine", "atheris", name]
        command += [f"--inputs={options.inputs}", f"--seed={options.seed}"]
        status |= subprocess.run(command, cwd=ROOT, check=False).returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
