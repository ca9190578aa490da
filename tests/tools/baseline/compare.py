"""What differs between two records, shortly."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def compare(old: Path, new: Path, parts: Iterable[str], most: int) -> int:
    """Print the differences of each part and a summary; 1 if one of them matters."""
    summary, wrong = [], 0
    for part in parts:
        files = [folder / f"{part}.json" for folder in (old, new)]
        if not all(file.exists() for file in files):
            summary.append(f"{part:14} not recorded in both")
            continue
        a, b = (json.loads(file.read_text(encoding="utf-8"))["found"] for file in files)
        rules = {"api": api, "calls": calls}
        serious, harmless, n = rules.get(part, values)(a, b)
        for line in [*serious[:most], *harmless[:most]]:
            print(f"{part}: {line}")
        wrong += len(serious)
        summary.append(f"{part:14} {n:6} compared {len(serious):5} differ {len(harmless):5} noted")
    print("\n".join(summary))
    return int(wrong > 0)


Found = tuple[list[str], list[str], int]


def api(a: dict[str, Any], b: dict[str, Any]) -> Found:
    """Names that are gone or taken otherwise are serious; new ones and other words are noted."""
    serious, noted = [], []
    before, after = a["names"], b["names"]
    for path, was in before.items():
        if not was["listed"]:
            continue
        now = after.get(path)
        if now is None or (now["kind"] == "absent") > (was["kind"] == "absent"):
            serious.append(f"{path} is gone ({was['usage']})")
        elif (was["kind"], was["usage"]) != (now["kind"], now["usage"]):
            serious.append(f"{path}: {was['kind']} {was['usage']} -> {now['kind']} {now['usage']}")
        elif was["line"] != now["line"]:
            noted.append(f"{path}: {was['line']!r} -> {now['line']!r}")
    noted += [f"{path} is new" for path in after if after[path]["listed"] and path not in before]
    for path, names in a["mxnet"].items():
        others = b["mxnet"].get(path, "gone")
        if isinstance(names, str) or isinstance(others, str):
            if names != others:
                serious.append(f"{path}: {names} -> {others}")
        elif lost := sorted(set(names) - set(others)):
            serious.append(f"{path} lost {', '.join(lost)}")
    return serious, noted, sum(was["listed"] for was in before.values()) + len(a["mxnet"])


def calls(a: dict[str, Any], b: dict[str, Any]) -> Found:
    """Counts are told, all of them."""
    noted = [
        f"{name}: {was['calls']} calls in {was['files']} files -> "
        + (f"{b[name]['calls']} in {b[name]['files']}" if name in b else "not counted")
        for name, was in a.items()
    ]
    return [], noted, len(a)


def values(a: dict[str, Any], b: dict[str, Any]) -> Found:
    """Programs (lists of hashes), traces (questions and answers), printed programs (text).

    A program that only one record has is left out if that record was quick."""
    both = [name for name in a if name in b]
    serious, noted = [], []
    for name in both:
        was, now = a[name], b[name]
        if was == now:
            continue
        if isinstance(was, dict):
            serious += [
                f"{name}, {question}: {first_change(str(answer), str(now.get(question)))}"
                for question, answer in was.items()
                if answer != now.get(question)
            ]
        elif isinstance(was, list):
            at = next(
                (i for i, (x, y) in enumerate(zip(was, now)) if x != y), min(map(len, (was, now)))
            )
            pair = [each[at] if at < len(each) else "nothing" for each in (was, now)]
            differ = sum(x != y for x, y in zip(was, now)) + abs(len(was) - len(now))
            serious.append(
                f"{name}: value {at} of {len(was)}: {' -> '.join(pair)} ({differ} differ)"
            )
        else:
            serious.append(f"{name}: {first_change(was, now)}")
    if alone := len(a) + len(b) - 2 * len(both):
        noted.append(f"{alone} programs are in one record only")
    return serious, noted, len(both)


def first_change(was: str, now: str) -> str:
    """The first line that changed, and how many did."""
    lines = [
        line
        for line in difflib.unified_diff(was.splitlines(), now.splitlines(), lineterm="", n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    return f"{len(lines)} lines; " + " | ".join(line[:100] for line in lines[:2])
