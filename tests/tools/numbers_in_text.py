"""Sentences of the chapters that name a measured quantity: a time, a rate, a percentage, a factor.

What a run measures differs from machine to machine, so a chapter's text does not state it: a cell
prints it. A sentence with such a number is right if it is one of these:

    given        it stands in a prediction or in an exercise: the reader computes with it
    question     it asks
    conditional  it says under which condition it holds, or gives a bound
    listed       it stands in LISTED, with the reason why it holds on every machine

Code, formulas, pictures and the addresses of links are left out; folded answers are not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_WORDS = (
    "one two three four five six seven eight nine ten eleven twelve fifteen sixteen twenty thirty "
    "forty fifty sixty hundred thousand million billion"
)
_NUMBER = (
    r"(?:\d+(?:[ ,.\u00a0]\d+)*(?:e-?\d+)?|\b(?:" + "|".join(_WORDS.split()) + r")\b)"
    r"(?:[ -](?:hundred|thousand|million|billion))?"
)
_TIME = r"(?:ns|us|µs|μs|ms|(?:nano|micro|milli)?(?:seconds?|secs?)|minutes?|hours?)\b"
_RATE = (
    r"(?:[kMGT]?B|bytes?|[kMGT]?(?:FLOPs?|flops?|bit)|[kM]?ops?|images|examples|samples|batches|"
    r"steps|operations|tokens|requests)"
    r"(?:/s(?:ec)?\b|\ (?:per|a|each|every)\ (?:micro|milli)?second\b)"
)
_MORE = r"(?:as|faster|slower|longer|shorter|quicker|higher|lower|larger|smaller|more|less|fewer)\b"

#: What makes a sentence one that names a measured quantity.
MEASURED = re.compile(
    rf"""
      {_NUMBER}[ \u00a0-]?(?:{_TIME}|{_RATE}|%|per\ ?cent\b)
    | {_NUMBER}[ \u00a0]s\b
    | {_NUMBER}[ -]times[ ](?:the\ (?:time|speed|rate|work|bytes|memory)\b|{_MORE})
    | {_NUMBER}[ -]?fold\b
    | \btwice\ (?:as|the\ (?:time|speed|rate)\b)
    | \b(?:half|third|quarter|tenth|hundredth|thousandth)s?\ (?:of\ )?(?:a|the)\ (?:{_TIME}|time\b)
    | \baccuracy\b[^.?!\d]{{0,20}}0?\.\d
    | \bfactors?\ (?:of\ )?(?:about\ |almost\ |nearly\ )?{_NUMBER}
    """,
    re.VERBOSE | re.IGNORECASE,
)

#: What makes a sentence a conditional one.
CONDITIONAL = re.compile(
    r"\b(if|when|whenever|unless|as long as|would|could|can|may|might|your|at most|at least|up to|"
    r"as a rule|suppose|assume[sd]?)\b",
    re.IGNORECASE,
)


class Listed(NamedTuple):
    """chapter   the number of the chapter, or "appendix"
    words     a part of one sentence of the chapter, and of no other one there
    reason    set: a cell sets the number; arithmetic: it follows from numbers that are set;
              definition: the words mean this; published: the figure of a source
    proof     set: what stands in a cell, or in the chapter's module of `labs`; arithmetic: an
              expression that is True; otherwise words"""

    chapter: str
    words: str
    reason: str
    proof: str

    def holds(self, code: str) -> bool:
        """Whether the proof is one; `code` is that of the chapter and of its module in `labs`."""
        if self.reason == "set":
            return self.proof in code
        if self.reason == "arithmetic":
            return eval(self.proof) is True
        return self.reason in ("definition", "published") and len(self.proof.split()) >= 3


LISTED = [
    Listed("appendix", "missing to 100 %", "definition", "all of a limit"),
    Listed("appendix", "above 100 % needs", "definition", "more than a limit"),
    Listed("appendix", "eight times as many bytes", "arithmetic", "512 * (1 / 8) ** 2 == 8"),
    Listed("01", "10 µs of 50.1 ms", "arithmetic", "round(100 * 9 * 10 / 50_100, 1) == 0.2"),
    Listed("01", "90 µs of 150 µs", "arithmetic", "10 * (5 + 10) == 150 < 2 * 90"),
    Listed("03", "is a sleep of 10 ms", "set", "disk_s: float = 0.01"),
    Listed("03", "each operation takes 1 ms", "set", "times=lambda task: 1000"),
    Listed("03", "millisecond of `waits`", "arithmetic", "1 * 1 / 2 == 0.5"),  # one worker of two
    Listed("03", "millisecond of `dependency`", "arithmetic", "1 * 1 / 2 == 0.5"),
    Listed("03", "batch for 0.8 ms", "definition", "so the stored trace was generated"),
    Listed("03", "0 % of `waits`", "definition", "counted in a stored trace"),
    Listed("05", "devices of 0.025 GFLOP/s", "set", "gflops=0.025"),
    Listed("05", "so it takes 80 ms", "arithmetic", "2 * 100**3 / 0.025e9 == 0.08"),
    Listed("05", "a copy 32 ms", "arithmetic", "(2e6 / 0.05e9, 4e4 / 0.00125e9) == (0.04, 0.032)"),
    Listed("06", "slow, 0.005 GB/s", "set", "link_gb_s=0.005"),
    Listed("06", "step is twice as long", "definition", "the step of the weights"),
    Listed("07", "takes 20 microseconds", "set", "times=20"),
    Listed("07", "four times 20 us", "set", "times=20"),
    Listed("08", "message by 1 ms, and", "set", "gb_s=0.01, latency_s=0.001"),
    Listed("08", "α / β = 30 μs", "arithmetic", "round(30e-6 * 1.2e9) == 36_000"),
    Listed("08", "backward sleeps 4 ms", "set", "ms: float = 4"),
    Listed("08", "about twenty minutes", "arithmetic", "round((2 * 30 * 23100) ** 0.5 / 60) == 20"),
    Listed("08", "after 35 ms", "arithmetic", "8 * 4 + 3 == 35"),
    Listed("08", "after 32 + 20 + 24", "arithmetic", "(32 + 20 + 24, 8 + 4 * 26) == (76, 112)"),
]


class Sentence(NamedTuple):
    text: str
    kind: str  # "given", "question", "conditional", "listed"; "" if it is none of them


def find(chapter: str, markdown: str) -> list[Sentence]:
    """The sentences of a chapter's Markdown that name a measured quantity."""
    return [
        Sentence(text, _kind_of(chapter, text, asks))
        for text, asks in _sentences(markdown)
        if MEASURED.search(text)
    ]


def unused(chapter: str, markdown: str) -> list[Listed]:
    """The rows of LISTED that excuse no sentence of this chapter, or more than one."""
    texts = [s.text for s in find(chapter, markdown) if s.kind == "listed"]
    rows = [row for row in LISTED if chapter.startswith(row.chapter)]
    return [row for row in rows if sum(row.words in text for text in texts) != 1]


def _kind_of(chapter: str, text: str, asks: bool) -> str:
    if any(chapter.startswith(row.chapter) and row.words in text for row in LISTED):
        return "listed"
    if asks:
        return "given"
    if text.endswith("?"):
        return "question"
    return "conditional" if CONDITIONAL.search(text) else ""


def _sentences(markdown: str) -> Iterator[tuple[str, bool]]:
    """Each sentence, and whether it stands in a prediction or in an exercise."""
    text = re.sub(r"```.*?```", "", markdown, flags=re.S)
    text = re.sub(r"\$\$.*?\$\$|\$[^$\n]+\$", "FORMULA", text, flags=re.S)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text, _, exercises = text.partition("\n## Exercises\n")
    exercises, _, sources = exercises.partition("\n## Sources\n")
    for part, among in ((text, False), (exercises, True), (sources, False)):
        for piece in re.split(r"(<details>.*?</details>)", part, flags=re.S):
            folded = piece.startswith("<details>")
            piece = re.sub(r"<summary>.*?</summary>", "\n\n", piece, flags=re.S)
            piece = re.sub(r"<[^>]*>", "", piece)
            for paragraph in re.split(r"\n\s*\n|\n(?=\|)|\n(?=\s*(?:[-*]|\d+\.) )|\n(?=#)", piece):
                asks = not folded and (
                    among or "**Your prediction.**" in paragraph or "**Exercise.**" in paragraph
                )
                for sentence in _split(paragraph):
                    yield sentence, asks


def _split(paragraph: str) -> list[str]:
    """The sentences of a paragraph, or the one row of a table."""
    code = re.findall(r"`+[^`]*`+", paragraph)
    text = re.sub(r"`+[^`]*`+", "CODE", paragraph)  # a number in code is the program's
    parts = [text] if text.startswith("|") else re.split(r"(?<=[.?!])[*)\"]*\s+(?=[^a-z])", text)
    found = []
    for part in parts:
        n = part.count("CODE")
        names, code = code[:n], code[n:]
        if MEASURED.search(part):
            for name in names:
                # Shown as it stands, unless it would look like a quantity.
                part = part.replace("CODE", "`...`" if re.search(r"\d", name) else name, 1)
            found.append(" ".join(part.split()))
    return found


def read(path: Path, kind: str = "markdown") -> str:
    """All Markdown of a chapter, or all its code."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == kind)


def code_of(path: Path) -> str:
    """The code of a chapter and of its module in `labs`."""
    name = path.stem.partition("-")[2].replace("-", "_")
    lab = path.parent / "labs" / f"{name}.py"
    return read(path, "code") + (lab.read_text(encoding="utf-8") if lab.exists() else "")
