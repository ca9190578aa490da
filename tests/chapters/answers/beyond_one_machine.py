"""Answers to "Beyond one machine": which gradients travel together, and a sum by halving."""

from __future__ import annotations

from answers import Answers

ORDER = "    order = list(range(len(kb)))[::-1]\n"

ALL_CUTS = '''
from itertools import product

def plan(exist_ms, kb, alpha, beta):
    """Every cut, and `travel` of the chapter."""
    n, plans = len(kb), []
    for cuts in product([False, True], repeat=n - 1):
        buckets = [[n - 1]]
        for i, cut in zip(range(n - 2, -1, -1), cuts):
            if cut:
                buckets.append([])
            buckets[-1].append(i)
        plans.append(buckets)
    return min(plans, key=lambda p: travel(p, exist_ms, kb, alpha, beta)[-1][1])
'''

RECURSION = """
def all_plans(order):
    if not order:
        yield []
    for k in range(1, len(order) + 1):
        for rest in all_plans(order[k:]):
            yield [order[:k]] + rest

def plan(exist_ms, kb, alpha, beta):
    order = list(reversed(range(len(kb))))
    return min(all_plans(order), key=lambda p: travel(p, exist_ms, kb, alpha, beta)[-1][1])
"""

FROM_THE_BACK = """
from functools import lru_cache

def plan(exist_ms, kb, alpha, beta):
    n = len(kb)

    @lru_cache(None)
    def best(left):  # the layers 0 .. left - 1 still have to travel: the best plan for the others
        if left == n:
            return 0.0, ()
        found = []
        for upper in range(left + 1, n + 1):
            free, before = best(upper)
            end = max(free, exist_ms[left]) + alpha + beta * sum(kb[left:upper])
            found.append((end, before + (tuple(range(upper - 1, left - 1, -1)),)))
        return min(found)

    return best(0)[1]
"""

BY_NUMPY = (
    RECURSION
    + """
by_recursion = plan

def plan(*given):
    return [np.array(bucket) for bucket in by_recursion(*given)]
"""
)

A_GENERATOR = (
    RECURSION
    + """
by_recursion = plan

def plan(*given):
    yield []  # an empty bucket says nothing
    for bucket in by_recursion(*given):
        yield sorted(bucket)
"""
)

EACH_BY_ITSELF = (
    "def plan(exist_ms, kb, alpha, beta):\n" + ORDER + "    return [[i] for i in order]"
)

FOUR_AND_THREE = (
    "def plan(exist_ms, kb, alpha, beta):\n" + ORDER + "    half = (len(order) + 1) // 2\n"
    "    return [order[:half], order[half:]]"
)

THREE_BUCKETS = (
    "def plan(exist_ms, kb, alpha, beta):\n"
    + ORDER
    + "    return [order[:2], order[2:-2], order[-2:]]"
)

TWO_BY_TWO = (
    "def plan(exist_ms, kb, alpha, beta):\n"
    + ORDER
    + "    return [order[i : i + 2] for i in range(0, len(order), 2)]"
)

#: 256 kB and more fill a bucket, as in the library.
UP_TO_A_SIZE = """
def plan(exist_ms, kb, alpha, beta):
    buckets, size = [[]], 0
    for i in reversed(range(len(kb))):
        if size + kb[i] > 256:
            buckets.append([])
            size = 0
        buckets[-1].append(i)
        size += kb[i]
    return buckets
"""

GREEDY = """
def plan(exist_ms, kb, alpha, beta):
    buckets, free = [], 0
    for i in reversed(range(len(kb))):
        if buckets and exist_ms[i] < free:  # the link is busy: wait with the others
            buckets[-1].append(i)
        else:
            buckets.append([i])
        free = max(free, exist_ms[i]) + alpha + beta * kb[i]
    return buckets
"""

PLAN = Answers(
    "plan",
    [ALL_CUTS, RECURSION, FROM_THE_BACK, BY_NUMPY, A_GENERATOR],
    [
        ("none", "def plan(exist_ms, kb, alpha, beta):\n    [[i] for i in range(len(kb))]"),
        ("form", "def plan(exist_ms, kb, alpha, beta):\n    return list(range(len(kb)))[::-1]"),
        ("form", "def plan(exist_ms, kb, alpha, beta):\n    return 3"),
        ("form", "def plan(exist_ms, kb, alpha, beta):\n    return {'bucket': [0]}"),
        ("merge", EACH_BY_ITSELF),
        ("merge", TWO_BY_TWO),
        ("split", "def plan(*g):\n    return [list(range(len(g[1])))[::-1]]"),
        ("split", UP_TO_A_SIZE),
        ("split", FOUR_AND_THREE),
        ("late", THREE_BUCKETS),
        ("split", GREEDY),
        ("order", "def plan(exist_ms, kb, *link):\n    return [[i] for i in range(len(kb))]"),
        ("left", EACH_BY_ITSELF + "[:-1]"),
        ("left", "def plan(exist_ms, kb, alpha, beta):\n    return []"),
        ("twice", EACH_BY_ITSELF + " + [[0]]"),
        ("left", EACH_BY_ITSELF.replace("len(kb)", "1, len(kb)")),
    ],
    needs=("travel",),
)

PAIRS = '''
def halving(n):
    """Near partners first, so that the pieces of a process lie apart."""
    own = {r: set(range(n)) for r in range(n)}
    there, back = [], []
    for k in range(n.bit_length() - 1):
        down, up = [], []
        for r in range(n):
            mine = {p for p in own[r] if (p >> k & 1) == (r >> k & 1)}
            down.append((r, r ^ 2**k, sorted(own[r] - mine), True))
            up.append((r, r ^ 2**k, sorted(mine), False))
            own[r] = mine
        there.append(down)
        back.insert(0, up)
    return there + back
'''

THE_OTHER_HALF = PAIRS.replace("== (r >> k & 1)", "!= (r >> k & 1)")

BY_CLASS_OF_DISTANCE = """
def halving(n):
    rounds, d = [], n // 2
    while d:  # r keeps the pieces that agree with r in all bits from d on
        rounds.append([
            (r, r ^ d, [p for p in range(n) if p // d == (r ^ d) // d], True) for r in range(n)
        ])
        d //= 2
    d = 1
    while d < n:
        rounds.append([(r, r ^ d, [p for p in range(n) if p // d == r // d], False)
                       for r in range(n)])
        d *= 2
    return rounds
"""

AS_GENERATORS = """
def halving(n):
    def there(d):
        for r in range(n):
            first = (r ^ d) // d * d
            yield r, r ^ d, range(first, first + d), 1

    def back(d):
        for r in range(n):
            yield r, r ^ d, range(r // d * d, r // d * d + d), 0

    d = n
    while d > 1:
        d //= 2
        yield there(d)
    while d < n:
        yield back(d)
        d *= 2
"""

RECURSIVE_HALVING = """
def parts(ranks, pieces):
    if len(ranks) == 1:
        return []
    m = len(ranks) // 2
    low, high = pieces[:m], pieces[m:]
    pairs = list(zip(ranks[:m], ranks[m:]))
    first = [(a, b, high, True) for a, b in pairs] + [(b, a, low, True) for a, b in pairs]
    last = [(a, b, low, False) for a, b in pairs] + [(b, a, high, False) for a, b in pairs]
    inner = [x + y for x, y in zip(parts(ranks[:m], low), parts(ranks[m:], high))]
    return [first, *inner, last]

def halving(n):
    return parts(list(range(n)), list(range(n)))
"""

WHOLE_ARRAYS = """
def halving(n):
    ks = range(n.bit_length() - 1)
    sums = [[(r, r ^ 2**k, range(n), True) for r in range(n)] for k in ks]
    return sums + [[(r, r ^ 2**k, range(n), False) for r in range(n)] for k in ks]
"""

RING = """
def halving(n):
    return [[(r, (r + 1) % n, [(r - t) % n], t < n - 1) for r in range(n)]
            for t in range(2 * (n - 1))]
"""

SHARES = """
def halving(n):
    pairs = [(s, r) for r in range(n) for s in range(n) if s != r]
    return [[(s, r, [r], True) for s, r in pairs], [(r, s, [r], False) for s, r in pairs]]
"""

HALVING = Answers(
    "halving",
    [PAIRS, THE_OTHER_HALF, BY_CLASS_OF_DISTANCE, AS_GENERATORS, RECURSIVE_HALVING],
    [
        ("none", PAIRS.replace("return there + back", "there + back")),
        ("missing", PAIRS.replace("return there + back", "return there")),
        ("missing", "def halving(n):\n    return []".replace("[]", "[[(0, 1, [0], True)]]")),
        ("missing", PAIRS.replace("own[r] - mine", "mine")),
        ("add", BY_CLASS_OF_DISTANCE.replace("True", "False")),
        ("add", "def halving(n):\n    return []"),
        ("counted", BY_CLASS_OF_DISTANCE.replace("False", "True")),
        ("bytes", WHOLE_ARRAYS),
        ("rounds", RING),
        ("busy", SHARES),
        ("range", BY_CLASS_OF_DISTANCE.replace("r ^ d", "r + d")),
        ("range", "def halving(n):\n    n = 8" + PAIRS.split('apart."""')[1]),
        ("form", "def halving(n):\n    return n // 2"),
        ("form", "def halving(n):\n    return [(r, r ^ 1, [r]) for r in range(n)]"),
    ],
)

CHECKS = {"check_plan": PLAN, "check_halving": HALVING}
