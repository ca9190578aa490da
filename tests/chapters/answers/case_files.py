"""Answers to the exercises of Case files: repairs of engines, as functions of the wrong class."""

import textwrap

from answers import Answers


def repair(name: str, engine: str, *methods: str) -> str:
    """A function that returns a subclass with these methods."""
    body = "".join(textwrap.indent(textwrap.dedent(part), " " * 8) for part in methods)
    head = "from collections import deque\nimport itertools\n\n"
    return (
        f"{head}def {name}({engine}):\n    class Repaired({engine}):\n{body}\n    return Repaired"
    )


# -- 7: a lock held across a blocking call ---------------------------------------------------------

PUSH = """
def push(self, task):
    with self.lock:
        self.pending += 1
    self.jobs.put(task)
"""


def lock(*bodies: str) -> str:
    return repair("repair_lock", "Bounded", *bodies)


LOCK = Answers(
    "repair_lock",
    right=[
        # a semaphore bounds, the queue does not
        lock("""
            def __init__(self, workers=2, most=4):
                super().__init__(workers, most=0)
                self.places = threading.Semaphore(most)
            def push(self, task):
                self.places.acquire()
                def run():
                    self.places.release()
                    task()
                with self.lock:
                    self.pending += 1
                    self.jobs.put(run)
        """),
        # one condition, a deque
        lock("""
            def __init__(self, workers=2, most=4):
                self.most, self.waiting = most, deque()
                super().__init__(workers, most)
            def push(self, task):
                with self.lock:
                    self.lock.wait_for(lambda: len(self.waiting) < self.most)
                    self.pending += 1
                    self.waiting.append(task)
                    self.lock.notify_all()
            def work(self):
                while True:
                    with self.lock:
                        self.lock.wait_for(lambda: self.waiting)
                        task = self.waiting.popleft()
                        self.lock.notify_all()
                    task()
                    with self.lock:
                        self.pending -= 1
                        self.lock.notify_all()
        """),
        # the queue counts
        lock("""
            def push(self, task):
                self.jobs.put(task)
            def work(self):
                while True:
                    self.jobs.get()()
                    self.jobs.task_done()
            def waitall(self):
                self.jobs.join()
        """),
        # puts under the lock, but never blocks there
        lock("""
            def push(self, task):
                with self.lock:
                    while True:
                        try:
                            self.jobs.put_nowait(task)
                            break
                        except queue.Full:
                            self.lock.wait()
                    self.pending += 1
            def work(self):
                while True:
                    task = self.jobs.get()
                    with self.lock:
                        self.lock.notify_all()
                    task()
                    with self.lock:
                        self.pending -= 1
                        self.lock.notify_all()
        """),
        # asks again and again, without the lock
        lock("""
            def push(self, task):
                with self.lock:
                    self.pending += 1
                while self.jobs.full():
                    time.sleep(0.001)
                self.jobs.put(task)
        """),
        # a class of its own
        """
def repair_lock(_):
    class Mine:
        def __init__(self, workers=2, most=4):
            self.jobs, self.count = queue.Queue(maxsize=most), 0
            self.idle = threading.Condition()
            for _ in range(workers):
                threading.Thread(target=self.run, daemon=True).start()
        def push(self, task):
            self.idle.acquire()
            self.count += 1
            self.idle.release()
            self.jobs.put(task)
        def run(self):
            while True:
                self.jobs.get()()
                with self.idle:
                    self.count -= 1
                    if not self.count:
                        self.idle.notify_all()
        def waitall(self):
            with self.idle:
                while self.count:
                    self.idle.wait()
    return Mine
""",
    ],
    wrong=[
        ("nothing", "def repair_lock(Bounded):\n    pass"),
        ("nothing", "def repair_lock(Bounded):\n    return Bounded()"),
        ("nothing", "def repair_lock(Bounded):\n    return Bounded.push"),
        ("lock", "def repair_lock(Bounded):\n    return Bounded"),
        # each task runs inside push
        ("serial", lock("""
            def push(self, task):
                with self.lock:
                    task()
        """)),
        ("serial", lock(PUSH, """
            def work(self):
                while True:
                    task = self.jobs.get()
                    with self.lock:
                        task()
                        self.pending -= 1
                        self.lock.notify_all()
        """)),
        # a thread for each task
        ("unbounded", lock("""
            def push(self, task):
                with self.lock:
                    self.pending += 1
                def run():
                    task()
                    with self.lock:
                        self.pending -= 1
                        self.lock.notify_all()
                threading.Thread(target=run).start()
        """)),
        ("unbounded", lock(PUSH, """
            def __init__(self, workers=2, most=4):
                super().__init__(workers, most=0)
        """)),
        ("lost", lock("""
            def push(self, task):
                with self.lock:
                    try:
                        self.jobs.put_nowait(task)
                        self.pending += 1
                    except queue.Full:
                        return
        """)),
        ("lock", lock(PUSH, """
            def work(self):
                while True:
                    self.jobs.get()()
                    with self.lock:
                        self.pending -= 1
        """)),
        ("early", lock(PUSH, """
            def waitall(self):
                with self.lock:
                    self.lock.wait_for(lambda: True)
        """)),
        # waits for everything when the queue is full
        ("serial", lock("""
            def push(self, task):
                self.waitall()
                with self.lock:
                    self.pending += 1
                    self.jobs.put(task)
        """)),
        # asks without end and without a step
        ("no end", lock("""
            def push(self, task):
                with self.lock:
                    while self.pending >= 2:
                        pass
                    self.pending += 1
                self.jobs.put(task)
        """)),
    ],
)  # fmt: skip

# -- 8: counted work that a shutdown drops ---------------------------------------------------------


def stop(*bodies: str) -> str:
    return repair("repair_stop", "Stoppable", *bodies)


STOP_DROPS = """
def stop(self):
    with self.lock:
        self.stopped = True
        self.pending -= len(self.waiting)
        self.waiting.clear()
        self.lock.notify_all()
"""
RUN_REST = """
def work(self):
    while True:
        with self.lock:
            self.lock.wait_for(lambda: self.waiting or self.stopped)
            if not self.waiting:
                return
            task = self.waiting.popleft()
        task()
        with self.lock:
            self.pending -= 1
            self.lock.notify_all()
"""
STOP = Answers(
    "repair_stop",
    right=[
        stop(RUN_REST),
        stop(RUN_REST, """
def stop(self):
    super().stop()
    self.waitall()
"""),
        # a worker that ends subtracts what it drops
        stop("""
            def work(self):
                while True:
                    with self.lock:
                        self.lock.wait_for(lambda: self.waiting or self.stopped)
                        if self.stopped:
                            self.pending -= len(self.waiting)
                            self.waiting.clear()
                            self.lock.notify_all()
                            return
                        task = self.waiting.popleft()
                    task()
                    with self.lock:
                        self.pending -= 1
                        self.lock.notify_all()
        """),
        # the thread that stops runs the rest itself
        stop("""
            def stop(self):
                with self.lock:
                    self.stopped = True
                    rest = list(self.waiting)
                    self.waiting.clear()
                    self.lock.notify_all()
                for task in rest:
                    task()
                    with self.lock:
                        self.pending -= 1
                        self.lock.notify_all()
        """),
        # counts the running tasks
        stop("""
            running = 0
            def work(self):
                while True:
                    with self.lock:
                        self.lock.wait_for(lambda: self.waiting or self.stopped)
                        if self.stopped:
                            self.waiting.clear()
                            self.lock.notify_all()
                            return
                        task = self.waiting.popleft()
                        self.running += 1
                    task()
                    with self.lock:
                        self.running -= 1
                        self.lock.notify_all()
            def waitall(self):
                with self.lock:
                    self.lock.wait_for(lambda: not self.waiting and not self.running)
        """),
    ],
    wrong=[
        ("nothing", "def repair_stop(Stoppable):\n    pass"),
        ("nothing", "def repair_stop(Stoppable):\n    return Stoppable.stop"),
        ("forgets", "def repair_stop(Stoppable):\n    return Stoppable"),
        # the task that runs is forgotten
        ("early", stop("""
            def stop(self):
                with self.lock:
                    self.stopped = True
                    self.pending = 0
                    self.waiting.clear()
                    self.lock.notify_all()
        """)),
        # wakes no thread
        ("forgets", stop("""
            def stop(self):
                with self.lock:
                    self.stopped = True
                    self.pending -= len(self.waiting)
                    self.waiting.clear()
        """)),
        ("open", stop("""
            def stop(self):
                with self.lock:
                    self.pending -= len(self.waiting)
                    self.waiting.clear()
                    self.lock.notify_all()
        """)),
        ("open", stop("""
            def stop(self):
                pass
        """)),
        ("early", stop("""
            def waitall(self):
                with self.lock:
                    self.lock.wait_for(lambda: self.pending == 0 or self.stopped)
        """)),
        ("open", stop(STOP_DROPS, """
def push(self, task):
    with self.lock:
        if not self.stopped:
            self.waiting.append(task)
            self.pending += 1
            self.lock.notify_all()
""")),
        ("serial", stop(STOP_DROPS, """
def push(self, task):
    with self.lock:
        if self.stopped:
            raise RuntimeError("the engine is stopped")
        task()
""")),
    ],
)  # fmt: skip

# -- 9: memory back in the pool too early ----------------------------------------------------------

UPLOAD = """
def upload(self, name, values):
    buffer = self.free.get()
    buffer[:] = values
    self.jobs.put((name, buffer))
"""


def pool(*bodies: str) -> str:
    return repair("repair_pool", "Uploader", *bodies)


POOL = Answers(
    "repair_pool",
    right=[
        # the buffer travels with a function that returns it
        pool("""
            def upload(self, name, values):
                buffer = self.free.get()
                buffer[:] = values
                self.jobs.put((name, buffer, lambda: self.free.put(buffer)))
            def work(self):
                while True:
                    name, buffer, give_back = self.jobs.get()
                    try:
                        self.device[name] = self.copy(buffer)
                    finally:
                        give_back()
                        self.jobs.task_done()
        """),
        pool("""
            def __init__(self, copy, buffers=2, size=2):
                self.lock, self.unused = threading.Condition(), [[0] * size for _ in range(buffers)]
                super().__init__(copy, buffers, size)
            def upload(self, name, values):
                with self.lock:
                    self.lock.wait_for(lambda: self.unused)
                    buffer = self.unused.pop()
                buffer[:] = values
                self.jobs.put((name, buffer))
            def work(self):
                while True:
                    name, buffer = self.jobs.get()
                    self.device[name] = self.copy(buffer)
                    with self.lock:
                        self.unused.append(buffer)
                        self.lock.notify()
                    self.jobs.task_done()
        """),
        # each buffer has an event: its copy has ended
        pool("""
            def __init__(self, copy, buffers=2, size=2):
                pairs = [([0] * size, threading.Event()) for _ in range(buffers)]
                for _, event in pairs:
                    event.set()
                self.turn = itertools.cycle(pairs)
                super().__init__(copy, buffers, size)
            def upload(self, name, values):
                buffer, event = next(self.turn)
                event.wait()
                event.clear()
                buffer[:] = values
                self.jobs.put((name, (buffer, event)))
            def work(self):
                while True:
                    name, (buffer, event) = self.jobs.get()
                    self.device[name] = self.copy(buffer)
                    event.set()
                    self.jobs.task_done()
        """),
        # two threads that copy
        repair("repair_pool", "Uploader", UPLOAD + """
def __init__(self, copy, buffers=2, size=2):
    super().__init__(copy, buffers, size)
    threading.Thread(target=self.work, daemon=True).start()
def work(self):
    while True:
        name, buffer = self.jobs.get()
        self.device[name] = self.copy(buffer)
        self.free.put(buffer)
        self.jobs.task_done()
"""),
        # a semaphore bounds the buffers, a stack holds them
        pool("""
            def __init__(self, copy, buffers=2, size=2):
                self.places = threading.Semaphore(buffers)
                self.stack = [[0] * size for _ in range(buffers)]
                super().__init__(copy, buffers, size)
            def upload(self, name, values):
                self.places.acquire()
                buffer = self.stack.pop()
                buffer[:] = values
                self.jobs.put((name, buffer))
            def work(self):
                while True:
                    name, buffer = self.jobs.get()
                    self.device[name] = self.copy(buffer)
                    self.stack.append(buffer)
                    self.places.release()
                    self.jobs.task_done()
        """),
    ],
    wrong=[
        ("nothing", "def repair_pool(Uploader):\n    pass"),
        ("overwritten", "def repair_pool(Uploader):\n    return Uploader"),
        # no pool any more
        ("unbounded", pool("""
            def upload(self, name, values):
                self.jobs.put((name, list(values)))
        """)),
        # waits for its own copy
        ("timid", pool("""
            def upload(self, name, values):
                super().upload(name, values)
                self.jobs.join()
        """)),
        ("timid", pool("""
            def upload(self, name, values):
                buffer = self.free.get()
                buffer[:] = values
                self.device[name] = self.copy(buffer)
                self.free.put(buffer)
        """)),
        ("overwritten", pool(UPLOAD, """
def work(self):
    while True:
        name, buffer = self.jobs.get()
        self.free.put(buffer)
        self.device[name] = self.copy(buffer)
        self.jobs.task_done()
""")),
        ("stuck", pool(UPLOAD)),
        # the wait is over too early
        ("overwritten", pool(UPLOAD, """
def work(self):
    while True:
        name, buffer = self.jobs.get()
        self.jobs.task_done()
        self.device[name] = self.copy(buffer)
        self.free.put(buffer)
""")),
        # a lock around the two: the lifetime is wrong
        ("overwritten", pool("""
            lock = None
            def __init__(self, copy, buffers=2, size=2):
                self.lock = threading.Lock()
                super().__init__(copy, buffers, size)
            def upload(self, name, values):
                with self.lock:
                    super().upload(name, values)
            def work(self):
                while True:
                    name, buffer = self.jobs.get()
                    with self.lock:
                        self.device[name] = self.copy(buffer)
                    self.jobs.task_done()
        """)),
        ("stuck", pool("""
            def upload(self, name, values):
                buffer = self.free.get()
                buffer[:] = values
                self.jobs.put((name, buffer))
                self.jobs.put((name, buffer))
        """)),
    ],
)  # fmt: skip

# -- 10: an order lost through a view --------------------------------------------------------------


def views(*bodies: str) -> str:
    return repair("repair_views", "Ordered", *bodies)


def by_key(line: str) -> str:
    return views(f"def key(self, array):\n    {line}")


OVERLAP = """
def __init__(self, workers=2):
    self.earlier = []
    super().__init__(workers)
def push(self, fn, *arrays):
    done = threading.Event()
    with self.lock:
        before = [
            event
            for others, event in self.earlier
            if any(np.{test}(x, y) for x in arrays for y in others)
        ]
        self.earlier.append((arrays, done))
        self.jobs.put((fn, arrays, before, done))
def waitall(self):
    for _, event in list(self.earlier):
        event.wait()
"""
VIEWS = Answers(
    "repair_views",
    right=[
        views("""
            def key(self, array):
                while array.base is not None:
                    array = array.base
                return id(array)
        """),
        # the address of the memory that owns the bytes
        by_key("return (array if array.base is None else array.base).ctypes.data"),
        views(OVERLAP.format(test="may_share_memory")),
        views(OVERLAP.format(test="shares_memory")),
        # changes what push gets
        views("""
            def push(self, fn, *arrays):
                bottoms = [array if array.base is None else array.base for array in arrays]
                super().push(lambda *_: fn(*arrays), *bottoms)
        """),
    ],
    wrong=[
        ("nothing", "def repair_views(Ordered):\n    pass"),
        ("order", "def repair_views(Ordered):\n    return Ordered"),
        ("serial", by_key("return 0")),
        ("serial", by_key("pass")),
        # the bases of two arrays are both None
        ("serial", by_key("return id(array.base)")),
        # the address of the first element
        ("order", by_key("return array.ctypes.data")),
        ("serial", by_key("return array.shape")),
        ("serial", views("def push(self, fn, *arrays):\n    fn(*arrays)")),
        # one worker only
        ("serial", views("""
            def __init__(self, workers=2):
                super().__init__(1)
        """)),
        # the first array only
        ("order", views("""
            def key(self, array):
                return id(array if array.base is None else array.base)
            def push(self, fn, *arrays):
                super().push(lambda x: fn(x, *arrays[1:]), arrays[0])
        """)),
    ],
)  # fmt: skip

# -- 11: two buffers -------------------------------------------------------------------------------

DOUBLE = """
def double_buffer(batches):
    copies, compute = Stream(non_blocking=True), Stream(non_blocking=True)
    buffers, totals = [streams.empty(4) for _ in range({n})], []
    used = [None] * {n}
    for number, batch in enumerate(batches):
        at = number % {n}
        {before}
        buffers[at].set(batch, copies)
        {between}
        with compute:
            totals.append((buffers[at] * buffers[at]).sum())
        {after}
        used[at] = compute.record()
    with compute:
        return {result}
"""
PARTS = {
    "n": 2,
    "before": "if used[at] is not None: copies.wait_event(used[at])",
    "between": "compute.wait_event(copies.record())",
    "after": "pass",
    "result": "[total.item() for total in totals]",
}


def double(**changed: object) -> str:
    return DOUBLE.format(**{**PARTS, **changed})


BUFFER = Answers(
    "double_buffer",
    right=[
        double(),
        double(n=3),
        double(result="tuple(float(total.get()) for total in totals)"),
        # an event for each buffer, recorded again and again
        """
def double_buffer(batches):
    copies, compute = Stream(non_blocking=True), Stream(non_blocking=True)
    places = [(streams.empty(4), streams.Event()) for _ in range(2)]
    totals = []
    for number, batch in enumerate(batches):
        x, free = places[number % 2]
        copies.wait_event(free)
        x.set(batch, copies)
        compute.wait_event(copies.record())
        with compute:
            totals.append((x * x).sum())
            free.record()
    with compute:
        return np.array([total.item() for total in totals])
""",
        # an array for each batch
        """
def double_buffer(batches):
    copies, compute = Stream(non_blocking=True), Stream(non_blocking=True)
    arrays = [streams.empty(4) for _ in batches]
    totals = []
    for x, batch in zip(arrays, batches):
        x.set(batch, copies)
        compute.wait_event(copies.record())
        with compute:
            totals.append((x * x).sum())
    with compute:
        return [total.item() for total in totals]
""",
        # two halves of one array
        """
def double_buffer(batches):
    copies, compute = Stream(non_blocking=True), Stream(non_blocking=True)
    buffer, totals = streams.empty((2, 4)), []
    used = [compute.record(), compute.record()]
    for number, batch in enumerate(batches):
        x = buffer[number % 2]
        copies.wait_event(used[number % 2])
        x.set(batch, copies)
        compute.wait_event(copies.record())
        with compute:
            totals.append((x * x).sum())
            used[number % 2] = compute.record()
    return [total.get(compute).item() for total in totals]
""",
        # two copies ahead
        """
def double_buffer(batches):
    copies, compute = Stream(non_blocking=True), Stream(non_blocking=True)
    buffers = [streams.empty(4), streams.empty(4)]
    totals, copied, read = [], [], []
    def copy(number):
        if number < len(batches):
            if number >= 2:
                copies.wait_event(read[number - 2])
            buffers[number % 2].set(batches[number], copies)
            copied.append(copies.record())
    copy(0)
    for number in range(len(batches)):
        copy(number + 1) if number < 1 else None
        compute.wait_event(copied[number])
        with compute:
            totals.append((buffers[number % 2] * buffers[number % 2]).sum())
        read.append(compute.record())
        copy(number + 2)
    with compute:
        return [total.item() for total in totals]
""",
    ],
    wrong=[
        ("race", double(before="pass")),
        ("race", double(before="if used[at] is not None: compute.wait_event(used[at])")),
        ("race", double(before="pass", n=3)),
        ("race", double(between="pass")),
        ("race", double(between="copies.wait_event(copies.record())")),
        ("beside", double(before="copies.wait_event(compute.record())")),
        ("beside", double(n=1)),
        ("beside", """
def double_buffer(batches):
    totals = []
    with Stream(non_blocking=True):
        x = streams.empty(4)
        for batch in batches:
            x.set(batch, streams.get_current_stream())
            totals.append((x * x).sum())
        return [total.item() for total in totals]
"""),
        ("waits", double(before="if used[at] is not None: used[at].synchronize()")),
        ("waits", double(before="pass", after="compute.synchronize()")),
        ("value", double(result="[total.item() for total in totals][:-1]")),
        ("value", "def double_buffer(batches):\n    pass"),
        ("value", double(result="totals and None")),
    ],
)  # fmt: skip

CHECKS = {
    "check_lock": LOCK,
    "check_stop": STOP,
    "check_pool": POOL,
    "check_views": VIEWS,
    "check_double_buffer": BUFFER,
}
