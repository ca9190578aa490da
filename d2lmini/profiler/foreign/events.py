"""The events of a Chrome trace: slices, and names of threads."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from d2lmini.profiler.columns import check, is_time, is_whole

Thread = tuple[Any, Any]

_ID = (None, int, is_whole, float, str)

#: What the members of events are, see `columns.fits`.
FORMS = {
    "ts": (None, is_time), "dur": (None, is_time), "args": (None, dict), "pid": _ID, "tid": _ID,
    "baseTimeNanoseconds": int,
}  # fmt: skip
T = TypeVar("T")

#: Keys for `last_until`, and for sorting.
BEGIN, PUSHED, ENDED = map(attrgetter, ("begin_ns", "pushed_ns", "ended_ns"))


class Slice(NamedTuple):
    """An activity of a thread from begin to end (an event X)."""

    thread: Thread
    name: str
    kind: str
    begin_ns: int
    end_ns: int
    args: dict[str, Any]


class ForeignEvents:
    """The events of a file.

    facts      the members of the file's object other than events
    slices     in the order of their begins, an enclosing slice first
    processes, threads    names, of a pid and of a (pid, tid)

    Times are nanoseconds; all are shifted if the first is not above 0, which says that something
    did not happen. Events that lack a time or a name are left out.
    """

    def __init__(self, members: Iterable[tuple[str, Any]]):
        self.facts: dict[str, Any] = {}
        self.slices: list[Slice] = []
        self.processes: dict[Any, str] = {}
        self._names: dict[Thread, str] = {}
        events = []
        for key, value in members:
            if key != "traceEvents":
                self.facts[key] = value
            elif isinstance(value, dict) and isinstance(value.get("name"), str):
                check(value, FORMS)
                events.append(value)
        check(self.facts, FORMS)
        begins = [event["ts"] for event in events if event.get("ts") is not None]
        first_ns, base_ns = _ns(min(begins, default=0)), self.facts.get("baseTimeNanoseconds", 0)
        self._base_ns = base_ns if first_ns + base_ns > 0 else 1 - first_ns
        for event in events:
            self._add(event)
        self.slices.sort(key=lambda slice: (slice.begin_ns, -slice.end_ns))

    def thread_name(self, thread: Thread) -> str:
        """A name that no other thread of the file has."""
        name = self._names.get(thread)
        if name is None:
            return f"thread {thread[1]}"
        same = [other for other, text in self._names.items() if text == name]
        return name if same[0] == thread else f"{name} ({same.index(thread) + 1})"

    def _add(self, event: dict[str, Any]) -> None:
        name, phase, args = event["name"], event.get("ph"), event.get("args") or {}
        thread = event.get("pid"), event.get("tid")
        if phase == "M" and args.get("name"):
            if name == "thread_name":
                self._names[thread] = str(args["name"])
            elif name == "process_name":
                self.processes[thread[0]] = str(args["name"])
        elif phase == "X" and event.get("ts") is not None:
            begin_ns = self._base_ns + _ns(event["ts"])
            end_ns = begin_ns + max(0, _ns(event.get("dur") or 0))
            kind = str(event.get("cat", ""))
            self.slices.append(Slice(thread, name, kind, begin_ns, end_ns, args))


def _ns(us: float) -> int:
    return round(us * 1000)


def by_thread(slices: Iterable[Slice]) -> dict[Thread, list[Slice]]:
    """The slices of each thread, in their order."""
    found: dict[Thread, list[Slice]] = defaultdict(list)
    for slice in slices:
        found[slice.thread].append(slice)
    return found


def last_until(items: Sequence[T], when_ns: int, key: Callable[[T], int]) -> T | None:
    """The last of `items`, which are in the order of their `key`, that is not later than a time."""
    k = bisect_right(items, when_ns, key=key)
    return items[k - 1] if k else None
