"""Accidents and attacks: a valid file in, a hostile one out.

    random = Random(0)
    binary(random, data)          # bits, bytes, numbers, lengths, pieces cut, doubled, moved
    json_text(random, data)       # the same with the values of a JSON tree, which stays JSON

All choices come from `random`, so a seed repeats a file; Hypothesis passes a `Random` of its own,
whose choices it can shrink.
"""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Sequence
from random import Random
from typing import Any

#: Numbers at which lengths, counts, sizes and signs go wrong.
EDGES = (
    0, 1, 2, 3, 4, 7, 8, 16, 20, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 0x112, 1000, 4096,
    65535, 65536, 2**20, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**48, 2**61, 2**62,
    2**63 - 1, 2**63, 2**64 - 1, 2**64 - 2, 0xF993FAC8, 0xF993FAC9, 0xF993FACA,
)  # fmt: skip


def binary(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """`data` after one to six accidents; `others`: files to take pieces from."""
    blob = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        at = random.randint(0, len(blob))
        match random.randint(0, 9):
            case 0:
                if blob:
                    blob[min(at, len(blob) - 1)] ^= 1 << random.randint(0, 7)
            case 1:
                blob[at : at + 1] = bytes([random.randint(0, 255)])
            case 2 | 3:  # a number where one is likely to be
                width = random.choice((1, 2, 4, 8))
                at = at // width * width
                order = random.choice(("little", "big"))
                here = int.from_bytes(blob[at : at + width], order)
                new = random.choice((*EDGES, here + 1, here - 1, 2 * here, -here))
                blob[at : at + width] = (new % 256**width).to_bytes(width, order)
            case 4:
                del blob[at : at + random.randint(1, 40)]
            case 5:
                start = random.randint(0, len(blob))
                blob[at:at] = blob[start : start + random.randint(1, 60)]
            case 6:
                del blob[at:]
            case 7:
                size = random.randint(1, 16)
                blob[at:at] = random.getrandbits(8 * size).to_bytes(size, "little")
            case 8:
                if others:
                    piece = random.choice(others)
                    start = random.randint(0, len(piece))
                    blob[at:at] = piece[start : start + random.randint(1, 200)]
            case 9:
                size = random.choice((1, 4, 8))
                blob[at : at + size] = random.choice((b"\0", b"\xff")) * size
    return bytes(blob)


#: What stands in place of any value, at any place: valid JSON that a reader does not expect there.
STRUCTURAL: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 10**9, 2**31, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0,
    1e308, float("nan"), float("inf"), "", "0", "-1", "None", "True", "x", "(", "()", "(2, 2)",
    "(-1,)", "1e999", "nan", "9" * 5000, "(" + "1, " * 300 + ")", "\0", "\ud800", "é", "__class__",
    "../x", [], {}, [0], [[0, 0, 0]], [[]], [None], {"a": 1}, {"pairs": [[0, 1]]},
    {"pairs": [[[], 1]]},
)  # fmt: skip


def structural(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """JSON, perhaps gzipped, in which one or two values at any place are another kind of value, are
    left out, or come twice; some are nested 100 000 deep."""
    packed = data[:2] == b"\x1f\x8b"
    tree = json.loads(gzip.decompress(data) if packed else data)
    for _ in range(random.choice((1, 1, 2))):
        places = list(_places(tree))
        if not places:
            break
        parent, key = random.choice(places)
        chance = random.random()
        if chance < 0.75:
            parent[key] = copy.deepcopy(random.choice(STRUCTURAL))
        elif chance < 0.9 or isinstance(parent, dict):
            del parent[key]
        else:
            parent.insert(key, copy.deepcopy(parent[key]))
    text = json.dumps(tree)
    if random.random() < 0.02:
        at = random.choice([i for i, letter in enumerate(text) if letter in ":,["] or [0])
        opening, closing = random.choice((("[", "]"), ('{"a":', "}")))
        depth = random.choice((500, 100_000))
        text = text[: at + 1] + opening * depth + "0" + closing * depth + text[at + 1 :]
    blob = text.encode("utf-8", "surrogatepass")
    return gzip.compress(blob, 1) if packed else blob


def json_text(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """`structural`, once or more; now and then `binary`, as for what is no JSON."""
    if random.random() < 0.2:
        return binary(random, data, others)
    try:
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            data = structural(random, data)
    except (ValueError, RecursionError):
        return binary(random, data, others)
    return data


def _places(tree: Any) -> Any:
    """Every (list or dict, key) in the tree."""
    if isinstance(tree, (list, dict)):
        pending = [tree]
        while pending:
            parent = pending.pop()
            for key in list(parent) if isinstance(parent, dict) else range(len(parent)):
                yield parent, key
                if isinstance(parent[key], (list, dict)):
                    pending.append(parent[key])
