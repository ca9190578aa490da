"""Run the chapters and print which of their claims about speed hold on this machine.

    python tests/benchmarks/claims.py [--strict] [--json FILE] [chapter.ipynb ...]    (make claims)

A claim is what a chapter hands to `d2l.compare(..., claim="...")`, a sentence about the names of
the candidates in this grammar:

    A is faster                     than each of the others
    A is faster than B              slower likewise
    A is 1.5 times faster than B    and the median ratio is at least 1.5
    A is as fast as B               no measurable difference

>>> verdict = Verdict({"a": [2.0] * 9, "b": [1.0] * 9})
>>> parse("b is 1.5 times faster than a", verdict.names)(verdict)
True

The table gives the verdict on the pair that the claim speaks of, how many times faster or
slower that is (median over the rounds, interval), and whether the claim holds; below it what
explains those that do not. The notebooks are run, not changed. Status 1 if a chapter stops with an
error; with --strict also if a claim does not hold, which elsewhere is a finding and not a fault.
"""

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from d2lmini.d2l.verdict import Ratio, Relation, Verdict

ROOT = Path(__file__).resolve().parents[2]

#: The first cell of a chapter that is run: each claim becomes a line of the file.
LISTEN = """
import sys
sys.path.insert(0, {folder!r})
import claims
from d2lmini.d2l.compare import remarks
remarks["claims"] = lambda verdict, candidates: claims.record(verdict, {chapter!r}, {path!r})
"""


@dataclass(frozen=True)
class Claim:
    """A text's claim: `name` is faster than each of `rivals`, slower or as fast, and that by the
    factor `at_least`. Called with a verdict, it returns whether the verdict supports the claim."""

    name: str
    rivals: tuple[str, ...]
    relation: Relation
    at_least: float = 0.0

    def __call__(self, verdict: Verdict) -> bool:
        return all(
            verdict.relation(self.name, rival) == self.relation
            and self.times(verdict, rival).value >= self.at_least
            for rival in self.rivals
        )

    def times(self, verdict: Verdict, rival: str) -> Ratio:
        """How many times faster `name` is than `rival`; slower, if the claim says slower."""
        pair = (rival, self.name) if self.relation == "faster" else (self.name, rival)
        return verdict.between(*pair)

    def closest(self, verdict: Verdict) -> str:
        """The rival against which the claim is weakest."""
        return min(self.rivals, key=lambda rival: self.times(verdict, rival).value)


def parse(claim: str, names: Iterable[str]) -> Claim:
    """The test that decides a claim; ValueError if it does not follow the grammar above."""
    names = list(names)
    # Longest first: of "net" and "net two", the claim "net two is faster" means the latter.
    name = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
    factor = r"(?P<factor>\d+(\.\d+)?) times "
    differs = rf"({factor})?(?P<relation>faster|slower)( than (?P<b>{name}))?"
    sentence = re.fullmatch(rf"(?P<a>{name}) is ({differs}|as fast as (?P<same>{name}))", claim)
    if sentence is None or sentence["a"] in (sentence["b"], sentence["same"]):
        raise ValueError(
            f"cannot read the claim {claim!r} about {names}; write 'A is faster', "
            "'A is 1.5 times slower than B' or 'A is as fast as B'"
        )
    a, rival = sentence["a"], sentence["b"] or sentence["same"]
    relations: dict[str | None, Relation] = {"faster": "faster", "slower": "slower"}
    return Claim(
        a,
        (rival,) if rival else tuple(n for n in names if n != a),
        relations.get(sentence["relation"], "no measurable difference"),
        float(sentence["factor"] or 0),
    )


def record(verdict: Verdict, chapter: str, path: str) -> str:
    """Append the claim and its outcome to the file, as a line of JSON: the chapter, the claim,
    whether it holds, and for its pair of candidates the relation, the ratio as [median, low, high],
    of the slower one's time over the faster one's, and why there is no difference."""
    if verdict.claim is not None:
        with open(path, "a", encoding="utf-8") as file:
            found = {"chapter": chapter, **row(verdict)}
            file.write(json.dumps(found, ensure_ascii=False) + "\n")
    return ""


def row(verdict: Verdict) -> dict[str, object]:
    """What `record` writes of a verdict with a claim."""
    claim = parse(verdict.claim or "", verdict.names)
    name, other = claim.name, claim.closest(verdict)
    relation = verdict.relation(name, other)
    ratio = verdict.between(*((other, name) if relation == "faster" else (name, other)))
    causes = verdict.causes(name, other) if relation == "no measurable difference" else []
    return {
        "claim": verdict.claim,
        "holds": claim(verdict),
        "verdict": relation,
        "ratio": [ratio.value, ratio.low, ratio.high],
        "sentence": verdict.sentence,
        "why": "; ".join(causes),
    }


def run_chapter(path: Path, claims_file: Path) -> str | None:
    """Execute one notebook in its own folder; the error's text if it fails."""
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    notebook = nbformat.read(path, as_version=4)
    here = str(Path(__file__).parent)
    listen = LISTEN.format(folder=here, chapter=path.stem, path=str(claims_file))
    notebook.cells.insert(0, nbformat.v4.new_code_cell(listen))
    place = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, kernel_name="python3", timeout=600, resources=place)
    try:
        client.execute(env=env)
    # Whatever stops one chapter (an error, a time-out, a dead kernel), the others still run.
    except Exception as error:
        colours = r"\x1b\[[0-9;]*m"
        return re.sub(colours, "", f"{type(error).__name__}: {error}").strip()
    return None


def table(rows: list[dict]) -> str:
    """The claims as text, one line each, and how many of them hold; then those that do not, with
    what was measured and what explains it."""
    head = ("chapter", "claim", "verdict", "ratio", "holds")
    cells = [
        (row["chapter"], row["claim"], row["verdict"], ratio(row), "yes" if row["holds"] else "no")
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (head, *cells)
    ]
    held = sum(bool(row["holds"]) for row in rows)
    lines += ["", f"{held} of {len(rows)} claims hold on this machine"]
    for row in rows:
        if not row["holds"]:
            # What the sentence says already is not said again.
            why = [w for w in row["why"].split("; ") if w and not row["sentence"].endswith(w)]
            found = [row["sentence"], *why]
            lines += ["", f"{row['chapter']}: {row['claim']}?", *("    " + each for each in found)]
    return "\n".join(lines)


def ratio(row: dict) -> str:
    """How many times faster or slower, and the interval: "1.9 (1.8-2.0)"."""
    value, low, high = row["ratio"]
    digits = 0 if value >= 10 else 1 if value >= 1.25 else 2
    return f"{value:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def main(argv: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("chapters", nargs="*", type=Path, help="default: chapters/*.ipynb")
    options.add_argument("--strict", action="store_true", help="status 1 if a claim does not hold")
    options.add_argument("--json", type=Path, metavar="FILE", help="keep the claims, a line each")
    args = options.parse_args(argv)

    chapters = args.chapters or sorted((ROOT / "chapters").glob("*.ipynb"))
    errors = {}
    with tempfile.TemporaryDirectory() as folder:
        claims_file = Path(folder) / "claims.jsonl"
        claims_file.touch()
        for path in chapters:
            print(f"running {path.name} ...", file=sys.stderr, flush=True)
            error = run_chapter(path.resolve(), claims_file)
            if error:
                errors[path.name] = error
        lines = claims_file.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]

    if args.json:
        args.json.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(table(rows))
    for name, error in errors.items():
        print(f"\n{name} stopped:\n{error}")
    return int(bool(errors) or (args.strict and not all(row["holds"] for row in rows)))


if __name__ == "__main__":
    sys.exit(main())
