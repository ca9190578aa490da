"""`d2lmini bench`: time d2lmini against plain NumPy on this machine.

The same work is written twice, in the usual way for NumPy and for d2lmini; `d2l.compare` runs them
in turns. First the values must agree, so that no version is timed for doing nothing. The benchmark
takes half a minute and needs only the library (`workloads.py`); in a clone `make bench` has many
more workloads, and also compares with PyTorch, JAX and MXNet.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

import d2lmini
from d2lmini.cli.errors import CommandError
from d2lmini.cli.progress import Progress


def add_to(commands: Any) -> None:
    """Declare `bench`."""
    parser = commands.add_parser(
        "bench",
        help="time the library beside plain NumPy",
        description="Time d2lmini beside plain NumPy on this machine, in turns. In a clone of the "
        "repository `make bench` does more, with PyTorch, JAX and MXNet beside.",
    )
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="only workloads that have it in their name"
    )
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="of each; default: 10")
    parser.add_argument(
        "--json", action="store_true", help="as JSON: seconds of one call, by round"
    )
    parser.set_defaults(do=bench)


def bench(options: argparse.Namespace) -> int:
    """Time the workloads and print a table; 0, or 1 where values differ."""
    from d2lmini import d2l
    from d2lmini.cli.workloads import WORKLOADS

    chosen = [w for w in WORKLOADS if not options.words or any(x in w.name for x in options.words)]
    if not chosen:
        names = "; ".join(workload.name for workload in WORKLOADS)
        raise CommandError(f"no workload is named so: {' '.join(options.words)}; there are {names}")
    if options.rounds < 5:
        raise CommandError(f"--rounds is 5 or more for a verdict, got {options.rounds}")
    rows: list[dict[str, Any]] = []
    with Progress(len(chosen)) as bar:
        if not options.json:
            bar.print(f"{d2l.machine()}\n\n{HEAD}")
        for workload in chosen:
            bar.step(workload.name)
            with workload.setting():
                numpy, ours = workload.make()
                problem = _difference(numpy(), ours())
                row = {"name": workload.name, "what": workload.what, "problem": problem}
                if problem is None:
                    verdict = d2l.compare(
                        {"NumPy": numpy, "d2lmini": ours}, rounds=options.rounds, explain=False
                    )
                    row |= _figures(verdict)
            rows.append(row)
            if not options.json:
                bar.print(_line(row))
    if options.json:
        print(json.dumps({"d2lmini": d2lmini.__version__, "workloads": rows}, indent=2))
    else:
        print(f"\nbelow 1: d2lmini is faster. {_find_disturbed(rows)}")
    return int(any(row["problem"] for row in rows))


HEAD = f"{'':<26}{'NumPy':>10}{'d2lmini':>10}{'ratio':>8}  (interval)"


def _figures(verdict: Any) -> dict[str, Any]:
    ratio = verdict.ratio
    return {
        "seconds": verdict.times,
        "ratio": ratio.value,
        "interval": [ratio.low, ratio.high],
        "elsewhere_cores": verdict.elsewhere,
    }


def _line(row: dict[str, Any]) -> str:
    from d2lmini.d2l.explain import duration

    if row["problem"]:
        return f"{row['name']:<26}{row['problem']}"
    numpy, ours = (duration(float(np.median(times))) for times in row["seconds"].values())
    low, high = row["interval"]
    spread = f"({low:.2f}-{high:.2f})"
    return f"{row['name']:<26}{numpy:>10}{ours:>10}{row['ratio']:>8.2f}  {spread:<18}{row['what']}"


def _find_disturbed(rows: list[dict[str, Any]]) -> str:
    most = max((row.get("elsewhere_cores") or 0.0 for row in rows), default=0.0)
    if most < 0.2:
        return "The machine was quiet."
    return f"Other programs kept up to {most:.1f} cores busy meanwhile: look at the intervals."


def _difference(theirs: Any, ours: Any) -> str | None:
    """A description of the difference; None if d2lmini's values are NumPy's."""
    found, expected = ours.asnumpy(), np.asarray(theirs)
    if found.size != expected.size:
        return f"shapes differ: {found.shape}, NumPy's is {expected.shape}"
    expected = expected.reshape(found.shape)
    if np.allclose(found, expected, rtol=1e-3, atol=1e-4):
        return None
    return f"values differ by up to {np.abs(found - expected).max():.3g}: not timed"
