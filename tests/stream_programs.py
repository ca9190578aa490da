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
from functools import partial
from typing import Any

import numpy as np
from fakes import cupy_arrays

LENGTH = 8
HALVES = ((0, LENGTH), (0, LENGTH // 2), (LENGTH // 2, LENGTH))
#: Instructions that order others, and change no memory.
WAITS = ("record", "wait", "sync event", "sync stream")


@dataclass
class Program:
    """streams: (device, kind) of each, kind "null", "blocking" or "non-blocking"; arrays: the
    stream that allocates each; `code`: (name, ...) tuples."""

    streams: list[tuple[int, str]]
    arrays: list[int]
    code: list[tuple] = field(default_factory=list)


def uses_of(instruction: tuple) -> tuple[int, list[tuple[Any, int, int, bool]]]:
    """The stream and the accesses (memory, begin, end, writes); stream -1: it orders others."""
    name, *rest = instruction
    if name == "kernel":
        stream, sources, target = rest
        return stream, [(*source, False) for source in sources] + [(*target, True)]
    if name in ("to host", "from host"):
        stream, array, buffer = rest
        out = name == "to host"
        host = ("pinned", buffer)
        return stream, [(array, 0, LENGTH, not out), (host, 0, LENGTH, out)]
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
        return [
            number
            for memory, begin, end, writes in accesses
            for number, old_begin, old_end, wrote in self.history[memory]
            if (writes or wrote) and begin < old_end and old_begin < end
            if not self._known(stream) >> number & 1
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
            if draw.random() < 0.1:
                add(("sync stream", owner))
                continue
            add(("record", owner, event))
            add(("sync event", event) if draw.random() < 0.2 else ("wait", stream, event))

    for array, owner in enumerate(program.arrays):
        add(("kernel", owner, [], (array, 0, LENGTH)))
    for _ in range(length):
        instruction = _draw(draw, program)
        if instruction[0] == "renew":
            _renew(program, oracle, order, add, instruction)
            continue
        order(instruction)
        add(instruction)
    return program


def _draw(draw: random.Random, program: Program) -> tuple:
    (kind,) = draw.choices(("kernel", "to host", "from host", "renew"), (10, 2, 2, 2))
    array, buffer = draw.randrange(len(program.arrays)), draw.randrange(2)
    device = program.streams[program.arrays[array]][0]
    stream = draw.choice([i for i, (place, _) in enumerate(program.streams) if place == device])
    if kind == "kernel":
        near = [i for i, owner in enumerate(program.arrays) if program.streams[owner][0] == device]
        begin, end = draw.choice(HALVES)
        sources = draw.sample(near, draw.randint(1, min(2, len(near))))
        return "kernel", stream, [(i, begin, end) for i in sources], (array, begin, end)
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


def run(program: Program, cupy: Any = None) -> list[list[float]]:
    """The arrays and the pinned buffers at the end: by the streams of the fake `cupy`, or by NumPy
    in the order of the program."""
    place = _InOrder(program) if cupy is None else _OnStreams(program, cupy)
    for number, (name, *rest) in enumerate(program.code):
        getattr(place, name.replace(" ", "_"))(number, *rest)
    return place.values()


class _InOrder:
    """Each instruction at once, with NumPy."""

    def __init__(self, program: Program):
        self.arrays: list[Any] = [np.zeros(LENGTH) for _ in program.arrays]
        self.pinned: list[Any] = [np.zeros(LENGTH) for _ in range(2)]

    def values(self) -> list[list[float]]:
        return [array.tolist() for array in (*self.arrays, *self.pinned)]

    def kernel(self, number: int, stream: int, sources: list, target: tuple) -> None:
        array, begin, end = target
        parts = [self.arrays[i][first:last] for i, first, last in sources]
        (self.arrays[array][begin:end],) = _compute(number, end - begin, *parts)

    def to_host(self, number: int, stream: int, array: int, buffer: int) -> None:
        self.pinned[buffer][:] = self.arrays[array]

    def from_host(self, number: int, stream: int, array: int, buffer: int) -> None:
        self.arrays[array][:] = self.pinned[buffer]

    def renew(self, number: int, stream: int, array: int) -> None:
        self.arrays[array] = np.full(LENGTH, np.nan)

    def ignore(self, *rest: Any) -> None:
        """An instruction that orders others."""

    record = wait = sync_event = sync_stream = ignore


def _compute(number: int, length: int, *parts: np.ndarray) -> tuple[np.ndarray]:
    result = np.full(length, float(number))
    for part in parts:
        result = result * 0.5 + part
    return (result,)


class _OnStreams:
    """The same instructions by the streams of the fake."""

    def __init__(self, program: Program, cupy: Any):
        self.cupy = cupy
        self.places = [device for device, _ in program.streams]
        self.streams = []
        for device, kind in program.streams:
            with cupy.cuda.Device(device):
                self.streams.append(
                    cupy.cuda.Stream(null=kind == "null", non_blocking=kind == "non-blocking")
                )
        self.owners = program.arrays
        self.events: dict[int, Any] = {}
        self.arrays = [self._allocate(owner) for owner in program.arrays]
        self.pinned = [cupy.cupyx.empty_pinned(LENGTH) for _ in range(2)]
        for buffer in self.pinned:
            buffer[:] = 0

    def _allocate(self, stream: int) -> Any:
        with self.cupy.cuda.Device(self.places[stream]), self.streams[stream]:
            return self.cupy.empty(LENGTH)

    def values(self) -> list[list[float]]:
        for device in sorted(set(self.places)):
            self.cupy.cuda.Device(device).synchronize()
        found = []
        for owner, array in zip(self.owners, self.arrays):
            with self.cupy.cuda.Device(self.places[owner]):
                found.append(array.get().tolist())
        return found + [buffer.tolist() for buffer in self.pinned]

    def kernel(self, number: int, stream: int, sources: list, target: tuple) -> None:
        array, begin, end = target
        parts = [self.arrays[i][first:last] for i, first, last in sources]
        function = partial(_compute, number, end - begin)
        with self.cupy.cuda.Device(self.places[stream]), self.streams[stream]:
            cupy_arrays.hook.execute("kernel", function, parts, [self.arrays[array][begin:end]])

    def to_host(self, number: int, stream: int, array: int, buffer: int) -> None:
        out = self.pinned[buffer]
        self.arrays[array].get(stream=self.streams[stream], out=out, blocking=False)

    def from_host(self, number: int, stream: int, array: int, buffer: int) -> None:
        self.arrays[array].set(self.pinned[buffer], self.streams[stream])

    def renew(self, number: int, stream: int, array: int) -> None:
        self.arrays[array] = None
        self.arrays[array] = self._allocate(stream)

    def record(self, number: int, stream: int, event: int) -> None:
        with self.cupy.cuda.Device(self.places[stream]):
            self.events[event] = self.streams[stream].record()

    def wait(self, number: int, stream: int, event: int) -> None:
        with self.cupy.cuda.Device(self.places[stream]):
            self.streams[stream].wait_event(self.events[event])

    def sync_event(self, number: int, event: int) -> None:
        self.events[event].synchronize()

    def sync_stream(self, number: int, stream: int) -> None:
        with self.cupy.cuda.Device(self.places[stream]):
            self.streams[stream].synchronize()
