"""Answers to "Split anything": a layer that is gathered once a step, and a pipeline's schedule."""

from __future__ import annotations

from answers import Answers

BY_DERIVATION = """
class GatherOnce(Zero3):
    whole = None

    def gather(self):
        if self.whole is None:
            self.whole = super().gather()
        return self.whole

    def update(self):
        super().update()
        self.whole = None
"""

#: The second use is the last one; the first layer has only one.
DROP_AFTER_USE = """
class GatherOnce(Zero3):
    def __init__(self, value, devices):
        super().__init__(value, devices)
        self.cache = []

    def gather(self):
        if self.cache:
            return self.cache.pop()
        wholes = super().gather()
        self.cache.append(wholes)
        return wholes

    def collect(self, parts):
        super().collect(parts)

    def update(self):
        lab.adam(self.weights, self.gradients, self.states)
        self.cache.clear()
"""

BY_HAND = """
class GatherOnce:
    '''Copies, sums and concat, without the lab.'''

    def __init__(self, value, devices):
        n = len(value) // len(devices)
        self.devices, self.n = devices, n
        self.weights = [nd.array(value[i * n : i * n + n], ctx=c) for i, c in enumerate(devices)]
        self.mean = [w * 0 for w in self.weights]
        self.var = [w * 0 for w in self.weights]

    def gather(self):
        if not hasattr(self, "w"):
            self.w = [
                nd.concat(*[s if s.context == c else s.copyto(c) for s in self.weights], dim=0)
                for c in self.devices
            ]
        return self.w

    def collect(self, parts):
        self.g = []
        for i, c in enumerate(self.devices):
            total = nd.zeros(self.weights[i].shape, ctx=c)
            for part in parts:
                shard = part[i * self.n : (i + 1) * self.n]
                total = total + shard.as_in_context(c)
            self.g.append(total)

    def update(self):
        for w, g, m, v in zip(self.weights, self.g, self.mean, self.var):
            nd.adam_update(w, g, m, v, lr=0.01, epsilon=1e-3, out=w)
        del self.w
"""

A_FACTORY = """
def GatherOnce(value, devices):
    layer = Zero3(value, devices)
    real_gather, real_update, cache = layer.gather, layer.update, {}

    def gather():
        if "W" not in cache:
            cache["W"] = real_gather()
        return cache["W"]

    def update():
        real_update()
        cache.clear()

    layer.gather, layer.update = gather, update
    return layer
"""

#: Cut by columns: the shards lie across the rows that the lab cuts.
BY_COLUMNS = """
class GatherOnce(lab.Layer):
    def __init__(self, value, devices):
        self.k = len(devices)
        self.weights = lab.cut(value, 1, devices)
        self.states = lab.states_for(self.weights)
        self.wholes = ()

    def gather(self):
        if not self.wholes:
            there = [[w.as_in_context(x.context) for w in self.weights] for x in self.weights]
            self.wholes = [nd.concat(*row, dim=1) for row in there]
        return self.wholes

    def collect(self, parts):
        self.gradients = [g.T.copy() for g in lab.reduce_scatter([p.T for p in parts])]

    def update(self):
        lab.adam(self.weights, self.gradients, self.states)
        self.wholes = ()
"""

GATHERS_TWICE = "class GatherOnce(Zero3):\n    pass"

NEVER_DROPS = BY_DERIVATION.replace("        self.whole = None\n", "")

GATHERS_AT_THE_END = """
class GatherOnce(Zero3):
    def __init__(self, value, devices):
        super().__init__(value, devices)
        self.whole = lab.all_gather(self.weights)

    def gather(self):
        return self.whole

    def update(self):
        super().update()
        self.whole = lab.all_gather(self.weights)
"""

KEEPS_VIEWS = BY_DERIVATION.replace(
    "    whole = None\n",
    "    def __init__(self, value, devices):\n"
    "        super().__init__(value, devices)\n"
    "        wholes = [nd.array(value, ctx=ctx) for ctx in devices]\n"
    "        self.weights, self.whole = lab.own_shards(wholes), None\n",
    1,
)


def collects(line: str) -> str:
    """The right answer with another `collect`."""
    return BY_DERIVATION + f"\n    def collect(self, parts):\n        {line}\n"


OLD_SHARDS = """
class GatherOnce(Zero3):
    whole = None

    def gather(self):
        if self.whole is None:
            self.whole = super().gather()
        return self.whole

    def update(self):
        super().update()
        for view, new in zip(lab.own_shards(self.whole), self.weights):
            view[:] = new
"""

GATHER_ONCE = Answers(
    "GatherOnce",
    [BY_DERIVATION, DROP_AFTER_USE, BY_HAND, A_FACTORY, BY_COLUMNS],
    [
        ("bytes", GATHERS_TWICE),
        ("bytes", collects("self.gradients = lab.own_shards(lab.all_reduce(parts))")),
        ("old", NEVER_DROPS),
        ("old", BY_DERIVATION.replace("        super().update()\n", "")),
        ("memory", GATHERS_AT_THE_END),
        ("memory", KEEPS_VIEWS),
        ("values", collects("self.gradients = [x.copy() for x in lab.own_shards(parts)]")),
        ("values", collects("self.gradients = [g / 2 for g in lab.reduce_scatter(parts)]")),
        ("stale", OLD_SHARDS),
        ("place", BY_DERIVATION.replace("super().gather()", "super().gather()[:1]")),
        ("shape", GATHERS_TWICE.replace("pass", "def gather(self):\n        return self.weights")),
        ("nothing", GATHERS_TWICE.replace("pass", "def gather(self):\n        self.whole = 1")),
        ("methods", "class GatherOnce:\n    def __init__(self, value, devices):\n        pass"),
        ("class", "class GatherOnce:\n    pass"),
        ("class", "GatherOnce = None"),
    ],
    needs=("DataParallel", "Zero1", "Zero2", "Zero3"),
)

IN_TURNS = """
def turns(p, m, device, ahead):
    stages, groups = (device, p + device), range(0, m, p)
    forward = [("F", s, i + j) for i in groups for s in stages for j in range(p)]
    backward = [("B", s, i + j) for i in groups for s in stages[::-1] for j in range(p)]
    passes = forward[:ahead]
    for k in range(len(forward) - ahead):
        passes += [forward[ahead + k], backward[k]]
    return passes + backward[len(forward) - ahead :]

def my_schedule(p, m):
    return [turns(p, m, d, 2 * (p - 1 - d) + p) for d in range(p)]
"""

ONE_LESS_AHEAD = IN_TURNS.replace("2 * (p - 1 - d) + p)", "2 * (p - 1 - d) + p - (d == 0))")

OTHER_DEVICES = (
    IN_TURNS + "\noriginal = my_schedule\nmy_schedule = lambda p, m: original(p, m)[::-1]"
)

AS_LISTS = """
import json

def as_lists(p, m):
    return json.loads(json.dumps(original(p, m)))
"""

#: All passes in the order of their begin, dealt out to the devices by their stage.
BY_THE_CLOCK = (
    IN_TURNS
    + """
right = my_schedule

def my_schedule(p, m):
    spans = [span for row in lab.run(right(p, m)).rows for span in row]
    schedule = [[] for _ in range(p)]
    for (kind, stage, i), begin, end in sorted(spans, key=lambda span: span[1]):
        schedule[stage % p].append([kind, np.int64(stage), np.int64(i)])
    return schedule
"""
)

ONE_F_ONE_B = """
def my_schedule(p, m):
    schedule = []
    for d in range(p):
        two = 2 * d, 2 * d + 1
        forward = [[("F", s, i) for s in two] for i in range(m)]
        backward = [[("B", s, i) for s in two[::-1]] for i in range(m)]
        ahead = p - 1 - d
        passes = forward[:ahead]
        for f, b in zip(forward[ahead:], backward):
            passes += [f, b]
        passes += backward[m - ahead :]
        schedule.append([step for two in passes for step in two])
    return schedule
"""

ALL_FORWARD_FIRST = """
def my_schedule(p, m):
    groups = range(0, m, p)
    return [
        [("F", s, i + j) for i in groups for s in (d, d + p) for j in range(p)]
        + [("B", s, i + j) for i in groups for s in (d + p, d) for j in range(p)]
        for d in range(p)
    ]
"""

ONE_BY_ONE = """
def my_schedule(p, m):
    return [[(k, s, i) for i in range(m) for k in "FB" for s in ((d, d + p) if k == "F" else
            (d + p, d))] for d in range(p)]
"""


def spoiled(line: str) -> str:
    """The right schedule, changed by a line."""
    return IN_TURNS + f"\nright = my_schedule\n\ndef my_schedule(p, m):\n    {line}\n"


SCHEDULE = Answers(
    "my_schedule",
    [
        IN_TURNS,
        ONE_LESS_AHEAD,
        OTHER_DEVICES,
        IN_TURNS.replace("my_schedule", "original") + AS_LISTS + "\nmy_schedule = as_lists",
        spoiled("return (iter(passes) for passes in right(p, m))"),
        BY_THE_CLOCK,
    ],
    [
        ("slow", ONE_F_ONE_B),
        ("slow", ONE_BY_ONE),
        ("memory", ALL_FORWARD_FIRST),
        ("missing", spoiled("return [passes[:-1] for passes in right(p, m)]")),
        ("missing", "def my_schedule(p, m):\n    return []"),
        ("twice", spoiled("first, *rest = right(p, m); return [[*first, first[-1]], *rest]")),
        ("order", spoiled("return [passes[::-1] for passes in right(p, m)]")),
        ("moved", spoiled("a, b, *c = right(p, m); return [a[:-1], [*b, a[-1]], *c]")),
        ("unknown", spoiled("a, *b = right(p, m); return [[*a, ('F', 0, m)], *b]")),
        ("unknown", spoiled("a, *b = right(p, m); return [[*a, ('forward', 0, 0)], *b]")),
        ("devices", spoiled("return [[x for passes in right(p, m) for x in passes]]")),
        ("none", spoiled("right(p, m)")),
        ("form", spoiled("return p * m")),
        ("form", spoiled("return right(p, m)[0]")),
    ],
)

CHECKS = {"check_gather_once": GATHER_ONCE, "check_schedule": SCHEDULE}
