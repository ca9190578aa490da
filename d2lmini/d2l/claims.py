"""A text's claims about speed, checked where the reader runs it.

"Asynchronous is faster" is true on the author's machine; is it true on yours? A chapter passes its
claim to `compare`, which stores in `verdict.holds` whether the verdict supports the claim:

    v = d2l.compare({"synchronous": f, "asynchronous": g}, claim="asynchronous is faster")

`make claims` (tests/benchmarks/claims.py) runs all chapters with D2LMINI_CLAIMS set to the path of
a file, to which each such call appends a line of JSON, and prints which claims hold.

A claim is a sentence about the candidates' names in this grammar:

    A is faster                     than each of the others
    A is faster than B              slower likewise
    A is 1.5 times faster than B    and the median ratio is at least 1.5
    A is as fast as B               no measurable difference

>>> from d2lmini.d2l import Verdict
>>> verdict = Verdict.from_times({"a": [2.0] * 9, "b": [1.0] * 9})
>>> parse("b is 1.5 times faster than a", verdict.names)(verdict)
True

Anything else needs `compare(..., claim="any words", holds=lambda verdict: ...)`.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from d2lmini import environment
from d2lmini.d2l.verdict import Ratio, Relation, Verdict


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
            f"compare: cannot read the claim {claim!r} about {names}; write 'A is faster', "
            "'A is 1.5 times slower than B' or 'A is as fast as B', or give holds=, a function "
            "of the verdict"
        )
    a, rival = sentence["a"], sentence["b"] or sentence["same"]
    relations: dict[str | None, Relation] = {"faster": "faster", "slower": "slower"}
    return Claim(
        a,
        (rival,) if rival else tuple(n for n in names if n != a),
        relations.get(sentence["relation"], "no measurable difference"),
        float(sentence["factor"] or 0),
    )


def record(verdict: Verdict) -> None:
    """Append the claim and its outcome to the file that D2LMINI_CLAIMS names; nothing when unset.

    A line of JSON: the chapter, the claim, whether it holds, and for its pair of candidates (the
    last and the first, if the claim has its own words) the relation, the ratio as [median, low,
    high], of the slower one's time over the faster one's, and the explanation.
    """
    path = environment.read("D2LMINI_CLAIMS")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row(verdict), ensure_ascii=False) + "\n")


def row(verdict: Verdict) -> dict[str, object]:
    """What `record` writes, as a dict."""
    name, other = verdict.names[-1], verdict.names[0]
    try:
        claim = parse(verdict.claim or "", verdict.names)
    except ValueError:
        pass
    else:
        name, other = claim.name, claim.closest(verdict)
    relation = verdict.relation(name, other)
    ratio = verdict.between(*((other, name) if relation == "faster" else (name, other)))
    return {
        "chapter": environment.read("D2LMINI_CHAPTER"),
        "claim": verdict.claim,
        "holds": verdict.holds,
        "verdict": relation,
        "ratio": [ratio.value, ratio.low, ratio.high],
        "sentence": verdict.sentence,
        "why": verdict.why(name, other),
    }
