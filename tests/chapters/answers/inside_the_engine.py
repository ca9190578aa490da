"""Answers to the exercises of Inside the engine."""

from answers import Answers

LINE = """
class Line:
    def __init__(self):
        self.readers, self.writer, self.queue = set(), None, []

    def grant(self, task, writes):
        if {grant}:
            return False
        if writes:
            self.writer = task
        else:
            self.readers.add(task)
        return True

    def claim(self, task, writes):
        if {claim} and self.grant(task, writes):
            return True
        self.queue.{wait}
        return False

    def leave(self, task):
        self.readers.discard(task)
        if self.writer == task:
            self.writer = None
        granted = []
        {more} self.queue and self.grant(*self.queue[{at}]):
            granted.append(self.queue.pop({at})[0])
        return granted
"""
RULE = {
    "grant": "self.writer is not None or (writes and self.readers)",
    "claim": "not self.queue",
    "wait": "append((task, writes))",
    "more": "while",
    "at": "0",
}


def line(**changed: str) -> str:
    """The chapter's rule in five parts, some of them changed."""
    return LINE.format(**{**RULE, **changed})


BOUNDED = """
def bounded(engine, most):
    push = engine.push
    def limited(fn, reads=(), writes=()):
        {body}
    engine.push = limited
    return engine
"""


def bounded(*lines: str) -> str:
    return BOUNDED.format(body="\n        ".join(lines))


CHECKS = {
    "check_line": Answers(
        "Line",
        right=[
            line(),
            # `leave` gathers what a generator gives
            """
class Line:
    def __init__(self):
        self.holders, self.waiting = [], []
    def fits(self, writes):
        return not self.holders or not (writes or self.holders[0][1])
    def claim(self, task, writes):
        granted = not self.waiting and self.fits(writes)
        (self.holders if granted else self.waiting).append((task, writes))
        return granted
    def leave(self, task):
        self.holders = [pair for pair in self.holders if pair[0] != task]
        return list(self.next())
    def next(self):
        while self.waiting and self.fits(self.waiting[0][1]):
            self.holders.append(self.waiting.pop(0))
            yield self.holders[-1][0]
""",
            # one list of all that have not left; how many of its tasks hold the Var
            """
class Line:
    def __init__(self):
        self.tasks, self.holders = [], set()
    def update(self):
        before = self.holders
        self.holders = set()
        for n, (task, writes) in enumerate(self.tasks):
            if writes and n > 0:
                break
            self.holders.add(task)
            if writes:
                break
        return self.holders - before
    def claim(self, task, writes):
        self.tasks.append((task, writes))
        return task in self.update()
    def leave(self, task):
        self.tasks = [pair for pair in self.tasks if pair[0] != task]
        return self.update()
""",
            # counts, as MXNet's engine has
            """
class Line(object):
    READ, WRITE = range(2)
    def __init__(self):
        self.count = 0  # of readers; -1: a writer
        self.queue = deque()
    def start(self, writes):
        self.count = -1 if writes else self.count + 1
    def may(self, writes):
        return self.count == 0 if writes else self.count >= 0
    def claim(self, task, writes):
        ok = len(self.queue) == 0 and self.may(writes)
        self.start(writes) if ok else self.queue.append([task, writes])
        return int(ok)
    def leave(self, task):
        self.count = max(self.count - 1, 0)
        out = ()
        while len(self.queue) > 0 and self.may(self.queue[0][1]):
            other, writes = self.queue.popleft()
            self.start(writes)
            out += (other,)
        return out
""",
            # the chapter's functions
            """
class Line:
    def __init__(self):
        self.holders, self.queue = {}, deque()
    def grant(self, task, writes):
        free = not self.holders if writes else True not in self.holders.values()
        if free:
            self.holders[task] = writes
        return free
    def claim(self, task, writes):
        if self.queue or not self.grant(task, writes):
            self.queue.append((task, writes))
        return task in self.holders
    def leave(self, task):
        del self.holders[task]
        granted = []
        while self.queue and self.grant(*self.queue[0]):
            granted.append(self.queue.popleft()[0])
        return granted
""",
            # recursion
            line().replace(
                "        granted = []\n        while", "        return self.more()\n"
                "    def more(self):\n        if"
            ).replace(
                "            granted.append(self.queue.pop(0)[0])\n        return granted",
                "            first = self.queue.pop(0)[0]\n"
                "            return [first] + self.more()\n        return []",
            ),
        ],
        wrong=[
            ("class", "class Line:\n    pass"),  # nothing is written
            ("class", "class Line:\n    def claim(self, task, writes):\n        return True"),
            ("class", "Line = None"),
            (
                "nothing",
                "class Line:\n    def claim(self, task, writes):\n        pass\n"
                "    def leave(self, task):\n        pass",
            ),
            ("nothing", line().replace("        return granted", "")),
            ("nothing", line().replace("pop(0)[0])", "pop(0))")),
            ("room", line(grant="self.writer is not None")),
            ("alone", line(grant="writes and (self.writer or self.readers)")),
            ("jumps", line(claim="True")),
            ("readers", line(grant="self.writer or self.readers")),
            ("free", line().replace("            return True\n        self.queue", "            "
                                    "return False\n        self.queue")),
            # The lists belong to the class.
            (
                "shared",
                line()
                .replace("    def __init__(self):\n        ", "    ")
                .replace("self.readers, self.writer, self.queue =", "readers, writer, queue ="),
            ),
            ("error", line().replace("discard(task)", "remove(task)")),
            ("twice", line().replace("return granted", "return __import__('itertools').count()")),
            ("asleep", line(more="while False and")),
            ("one by one", line(more="if")),
            ("overtakes", line(at="-1")),
            ("jumps", line(claim="(not writes or not self.queue)")),
            ("overtakes", line(wait="insert(0, (task, writes))")),
            (
                "twice",
                line().replace("append(self.queue.pop(0)[0])", "extend(self.queue.pop(0)[:1] * 2)"),
            ),
            ("endless", line().replace("self.queue.pop(0)[0]", "self.queue[0][0]")),
            (
                "beside",
                line().replace(
                    "        granted = []\n"
                    "        while self.queue and self.grant(*self.queue[0]):",
                    "        granted = []\n        for other, writes in list(self.queue):\n"
                    "            self.readers.add(other)\n"
                    "            self.writer = other if writes else None",
                ),
            ),
        ],
    ),
    "check_bounded": Answers(
        "bounded",
        right=[
            # a semaphore
            bounded(
                "slots.acquire()",
                "def run():",
                "    fn()",
                "    slots.release()",
                "push(run, reads, writes)",
            ).replace("push = engine.push", "push, slots = engine.push, threading.Semaphore(most)"),
            # a queue of slots
            bounded(
                "slots.put(None)", "push(lambda: (fn(), slots.get()), reads=reads, writes=writes)"
            ).replace("push = engine.push", "push, slots = engine.push, queue.Queue(most)"),
            # the lock is released before the push
            bounded(
                "with engine.lock:",
                "    engine.lock.wait_for(lambda: engine.pending <= most - 1)",
                "push(fn, reads, writes)",
            ),
            bounded(
                "with engine.lock:",
                "    while not engine.pending < most:",
                "        engine.lock.wait()",
                "    return push(fn, reads, writes)",
            ),
            # looks again and again
            bounded(
                "import time",
                "while engine.pending >= most:",
                "    time.sleep(1e-4)",
                "push(fn, reads, writes)",
            ),
            """
def bounded(engine, most):
    class Bounded(type(engine)):
        def push(self, *args, **kwargs):
            with self.lock:
                self.lock.wait_for(lambda: self.pending < most, timeout=None)
            return super().push(*args, **kwargs)
    engine.__class__ = Bounded
    return engine
""",
            # an object around the engine
            """
def bounded(engine, most):
    class Gate:
        def __getattr__(self, name):
            return getattr(engine, name)
        def push(self, fn, reads=(), writes=()):
            with engine.lock:
                engine.lock.wait_for(lambda: engine.pending < most)
                engine.push(fn, reads, writes)
    return Gate()
""",
        ],
        wrong=[
            ("engine", "def bounded(engine, most):\n    pass"),
            # Tests the condition once, and is woken by another push.
            (
                "once",
                bounded(
                    "with engine.lock:",
                    "    if engine.pending >= most:",
                    "        engine.lock.wait()",
                    "    push(fn, reads, writes)",
                ),
            ),
            (
                "raises",
                bounded(
                    "if engine.pending >= most:",
                    "    raise RuntimeError('full')",
                    "push(fn, reads, writes)",
                ),
            ),
            ("engine", "def bounded(engine, most):\n    return engine.push"),
            ("engine", bounded("push(fn, reads, writes)").replace("    return engine\n", "")),
            ("unbounded", "def bounded(engine, most):\n    return engine"),
            ("unbounded", "def bounded(engine, most):\n    engine.most = most\n    return engine"),
            # waits until all is done
            (
                "drains",
                bounded("if engine.pending >= most:", "    engine.waitall()",
                        "push(fn, reads, writes)"),
            ),
            (
                "drains",
                bounded(
                    "with engine.lock:",
                    "    if engine.pending == most:",
                    "        engine.lock.wait_for(lambda: engine.pending == 0)",
                    "push(fn, reads, writes)",
                ),
            ),
            (
                "off by one",
                bounded(
                    "with engine.lock:",
                    "    engine.lock.wait_for(lambda: engine.pending <= most)",
                    "push(fn, reads, writes)",
                ),
            ),
            (
                "timid",
                bounded(
                    "with engine.lock:",
                    "    engine.lock.wait_for(lambda: engine.pending < most // 2)",
                    "push(fn, reads, writes)",
                ),
            ),
            ("timid", bounded("push(fn, reads, writes)", "engine.waitall()")),
            ("returns", bounded("if engine.pending < most:", "    push(fn, reads, writes)")),
            (
                "stuck",
                bounded(
                    "import time",
                    "with engine.lock:",
                    "    while engine.pending >= most:",
                    "        time.sleep(0.001)",
                    "push(fn, reads, writes)",
                ),
            ),
            (
                "forgets",
                bounded(
                    "with engine.lock:",
                    "    engine.lock.wait_for(lambda: engine.pending < most)",
                    "push(fn)",
                ),
            ),
            # the bound of an example by heart
            (
                "timid",
                bounded(
                    "with engine.lock:",
                    "    engine.lock.wait_for(lambda: engine.pending < 3)",
                    "push(fn, reads, writes)",
                ),
            ),
        ],
    ),
}  # fmt: skip
