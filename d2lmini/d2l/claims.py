"""A text's claims about speed, checked where the reader runs it.

"Asynchronous is faster" is true on the author's machine; is it on yours? A chapter hands its claim
to `compare`, which keeps in `verdict.holds` whether the verdict supports it:

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
import os
import re
from collections.abc import Callable, Iterable

from d2lmini.d2l.verdict import Verdict


def parse(claim: str, names: Iterable[str]) -> Callable[[Verdict], bool]:
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
    a, relation = sentence["a"], sentence["relation"] or "no measurable difference"
    rivals = [sentence["b"] or sentence["same"]]
    if rivals == [None]:
        rivals = [n for n in names if n != a]
    at_least = float(sentence["factor"] or 0)

    def holds(verdict: Verdict) -> bool:
        for b in rivals:
            quick, slow = (a, b) if relation == "faster" else (b, a)
            if verdict.relation(a, b) != relation:
                return False
            if verdict.between(slow, quick).value < at_least:
                return False
        return True

    return holds


def record(verdict: Verdict) -> None:
    """Append the claim and its fate to the file D2LMINI_CLAIMS names; nothing when unset."""
    path = os.environ.get("D2LMINI_CLAIMS")
    if path:
        line = {
            "chapter": os.environ.get("D2LMINI_CHAPTER", ""),
            "claim": verdict.claim,
            "holds": verdict.holds,
            "sentence": verdict.sentence,
        }
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
