"""Random programs on streams, and an oracle that finds their data races by reachability alone.

A program is a list of instructions, so that it can be run, and judged without running it: `races`
keeps for each stream, event and for the host the set of all instructions that come before, and the
full history of each piece of memory. `generate` inserts the waits that a program needs, and some
that it does not need; `without_a_wait` removes one of them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from d2lmini import streams

LENGTH = 8
HALVES = ((0, LENGTH), (0, LENGTH // 2), (LENGTH // 2, LENGTH))
#: Instructions that order others, and change no memory.
WAITS = ("record", "wait", "sync event", "sync stream")


@dataclass
class Program:
    """streams: (device, kind) of each, kind "null", "blocking" or "non-blocking"; arrays: the
    stream that allocates each; `code`: (name, ...) tuples; the values that the host must read."""

    streams: list[tuple[int, str]]
    arrays: list[int]
    code: list[tuple] = field(default_factory=list)


def uses_of(instruction: tuple) -> tuple[int, list[tuple[Any, int, int, bool]]]:
    """The stream (-1: the host) and the accesses (memory, begin, end, writes)."""
    name, *rest = instruction
    if name == "kernel":
        stream, sources, target = rest
        return stream, [(*source, False) for source in sources] + [(*target, True)]
    if name in ("to host", "from host"):
        stream, array, buffer = rest
        out = name == "to host"
        host = ("pinned", buffer)
        return stream, [(array, 0, LENGTH, not out), (host, 0, LENGTH, out)]
    if name in ("host reads", "host writes"):
        return -1, [(("pinned", rest[0]), 0, LENGTH, name == "host writes")]
    return (rest[0] if name == "renew" else -1), []


class Oracle:
    """Which instructions come before which, as sets of bits."""

    def __init__(self, program: Program):
        self.program = program
        self.before = [0] * len(program.streams)
        self.issued = [0] * len(program.streams)
        self.events: dict[int, int] = {}
        self.host = 0
        self.history: dict[Any, list[tuple[int, int, int, bool]]] = defaultdict(list)
        self.count = 0

    def conflicts(self, instruction: tuple) -> list[int]:
        """The earlier instructions that conflict with it and do not come before it."""
        stream, accesses = uses_of(instruction)
        known = self.host if stream < 0 else self._known(stream)
        return [
            number
            for memory, begin, end, writes in accesses
            for number, old_begin, old_end, wrote in self.history[memory]
            if (writes or wrote) and begin < old_end and old_begin < end
            if not known >> number & 1
        ]

    def _known(self, stream: int) -> int:
        device, kind = self.program.streams[stream]
        known = self.before[stream] | self.host
        for other, (place, other_kind) in enumerate(self.program.streams):
            if place == device and {kind, other_kind} == {"null", "blocking"}:
                known |= self.before[other]
        return known

    def step(self, instruction: tuple) -> None:
        name, *rest = instruction
        if name == "sync event":
            self.host |= self.events[rest[0]]
            return
        if name == "sync stream" and not self.issued[rest[0]] & ~self.host:
            return
        stream, accesses = uses_of(instruction)
        if name in ("record", "wait", "sync stream"):
            stream = rest[0]
        number, self.count = self.count, self.count + 1
        for memory, begin, end, writes in accesses:
            self.history[memory].append((number, begin, end, writes))
        if stream < 0:
            self.host |= 1 << number
            return
        known = self._known(stream) | 1 << number
        if name == "wait":
            known |= self.events[rest[1]]
        self.before[stream] = known
        self.issued[stream] |= 1 << number
        if name == "record":
            self.events[rest[1]] = known
        if name == "sync stream":
            self.host |= known


def has_race(program: Program) -> bool:
    """Whether any two instructions conflict and nothing orders them."""
    oracle = Oracle(program)
    for instruction in program.code:
        if oracle.conflicts(instruction):
            return True
        oracle.step(instruction)
    return False


def generate(seed: int, length: int = 25) -> Program:
    """A random program with the waits that it needs."""
    draw = random.Random(seed)
    devices = draw.choice((1, 1, 2))
    kinds = [(device, "null") for device in range(devices)]
    kinds += [
        (draw.randrange(devices), draw.choice(("blocking", "non-blocking", "non-blocking")))
        for _ in range(draw.randint(2, 3))
    ]
    program = Program(kinds, [draw.randrange(len(kinds)) for _ in range(3)])
    oracle = Oracle(program)

    def add(instruction: tuple) -> None:
        oracle.step(instruction)
        program.code.append(instruction)

    def order(instruction: tuple) -> None:
        """Add waits until nothing conflicts."""
        stream = uses_of(instruction)[0]
        while left := oracle.conflicts(instruction):
            (number,) = draw.sample(left, 1)
            owner = next(i for i, bits in enumerate(oracle.issued) if bits >> number & 1)
            event = len(oracle.events)
            if stream < 0 and draw.random() < 0.5:
                add(("sync stream", owner))
                continue
            add(("record", owner, event))
            add(
                ("sync event", event)
                if stream < 0 or draw.random() < 0.2
                else ("wait", stream, event)
            )

    for array, owner in enumerate(program.arrays):
        add(("kernel", owner, [], (array, 0, LENGTH)))
    for buffer in range(2):
        add(("host writes", buffer))
    for _ in range(length):
        instruction = _draw(draw, program)
        if instruction[0] == "renew":
            _renew(program, oracle, order, add, instruction)
            continue
        order(instruction)
        add(instruction)
    return program


def _draw(draw: random.Random, program: Program) -> tuple:
    kind = draw.choices(
        ("kernel", "to host", "from host", "host reads", "host writes", "renew"),
        (10, 2, 2, 2, 1, 2),
    )[0]
    array, buffer = draw.randrange(len(program.arrays)), draw.randrange(2)
    device = program.streams[program.arrays[array]][0]
    stream = draw.choice([i for i, (place, _) in enumerate(program.streams) if place == device])
    if kind == "kernel":
        near = [i for i, owner in enumerate(program.arrays) if program.streams[owner][0] == device]
        begin, end = draw.choice(HALVES)
        sources = draw.sample(near, draw.randint(1, min(2, len(near))))
        return "kernel", stream, [(i, begin, end) for i in sources], (array, begin, end)
    if kind.startswith("host"):
        return kind, buffer
    if kind == "renew":
        return "renew", program.arrays[array], array
    return kind, stream, array, buffer


def _renew(program: Program, oracle: Oracle, order: Any, add: Any, instruction: tuple) -> None:
    """Free an array and allocate it again: its stream first waits for all that use the memory."""
    _, owner, array = instruction
    fill = ("kernel", owner, [], (array, 0, LENGTH))
    order(fill)
    add(instruction)
    add(fill)


def without_a_wait(program: Program, seed: int) -> Program:
    """The program with one wait less."""
    places = [i for i, (name, *_) in enumerate(program.code) if name in WAITS[1:]]
    if not places:
        return program
    place = random.Random(seed).choice(places)
    code = [step for i, step in enumerate(program.code) if i != place]
    return Program(program.streams, program.arrays, code)


# -- running ---------------------------------------------------------------------------------------


def run(program: Program, device_side: bool = True) -> list[list[float]]:
    """The values that the host reads, and all arrays at the end: by streams, or by NumPy in the
    order of the program."""
    return _OnStreams(program).run() if device_side else _InOrder(program).run()


class _InOrder:
    """Each instruction at once, with NumPy."""

    def __init__(self, program: Program):
        self.program = program
        self.arrays: list[Any] = [np.zeros(LENGTH) for _ in program.arrays]
        self.pinned: list[Any] = [np.zeros(LENGTH) for _ in range(2)]
        self.seen: list[list[float]] = []

    def run(self) -> list[list[float]]:
        for number, (name, *rest) in enumerate(self.program.code):
            if name not in WAITS:
                getattr(self, name.replace(" ", "_"))(number, *rest)
        return self.seen + [array.tolist() for array in self.arrays]

    def kernel(self, number: int, stream: int, sources: list, target: tuple) -> None:
        array, begin, end = target
        result = np.full(end - begin, float(number))
        for i, first, last in sources:
            result = result * 0.5 + self.arrays[i][first:last]
        self.arrays[array][begin:end] = result

    def to_host(self, number: int, stream: int, array: int, buffer: int) -> None:
        self.pinned[buffer][:] = self.arrays[array]

    def from_host(self, number: int, stream: int, array: int, buffer: int) -> None:
        self.arrays[array][:] = self.pinned[buffer]

    def host_reads(self, number: int, buffer: int) -> None:
        self.seen.append(self.pinned[buffer].tolist())

    def host_writes(self, number: int, buffer: int) -> None:
        self.pinned[buffer][:] = float(number)

    def renew(self, number: int, stream: int, array: int) -> None:
        self.arrays[array] = np.full(LENGTH, np.nan)


class _OnStreams(_InOrder):
    """The same instructions by `d2lmini.streams`."""

    def __init__(self, program: Program):
        super().__init__(program)
        self.streams = []
        for device, kind in program.streams:
            with streams.Device(device):
                self.streams.append(
                    streams.Stream(null=kind == "null", non_blocking=kind == "non-blocking")
                )
        self.places = [device for device, _ in program.streams]
        self.events: dict[int, Any] = {}
        self.arrays = [self._allocate(owner) for owner in program.arrays]
        self.pinned = [streams.empty_pinned(LENGTH) for _ in range(2)]

    def _allocate(self, stream: int) -> Any:
        with streams.Device(self.places[stream]), self.streams[stream]:
            return streams.empty(LENGTH)

    def run(self) -> list[list[float]]:
        for number, (name, *rest) in enumerate(self.program.code):
            getattr(self, name.replace(" ", "_"))(number, *rest)
        for device in sorted(set(self.places)):
            streams.Device(device).synchronize()
        for owner, array in zip(self.program.arrays, self.arrays):
            with streams.Device(self.places[owner]):
                self.seen.append(array.get().tolist())
        return self.seen

    def kernel(self, number: int, stream: int, sources: list, target: tuple) -> None:
        def compute(*parts: np.ndarray) -> np.ndarray:
            result = np.full(end - begin, float(number))
            for part in parts:
                result = result * 0.5 + part
            return result

        array, begin, end = target
        parts = [self.arrays[i][first:last] for i, first, last in sources]
        with streams.Device(self.places[stream]), self.streams[stream]:
            streams.fuse(compute)(*parts, out=self.arrays[array][begin:end])

    def to_host(self, number: int, stream: int, array: int, buffer: int) -> None:
        self.arrays[array].get(self.streams[stream], self.pinned[buffer], blocking=False)

    def from_host(self, number: int, stream: int, array: int, buffer: int) -> None:
        self.arrays[array].set(self.pinned[buffer], self.streams[stream])

    def renew(self, number: int, stream: int, array: int) -> None:
        self.arrays[array] = None
        self.arrays[array] = self._allocate(stream)

    def record(self, number: int, stream: int, event: int) -> None:
        with streams.Device(self.places[stream]):
            self.events[event] = self.streams[stream].record()

    def wait(self, number: int, stream: int, event: int) -> None:
        with streams.Device(self.places[stream]):
            self.streams[stream].wait_event(self.events[event])

    def sync_event(self, number: int, event: int) -> None:
        self.events[event].synchronize()

    def sync_stream(self, number: int, stream: int) -> None:
        with streams.Device(self.places[stream]):
            self.streams[stream].synchronize()
