"""Answers to the exercise of the chapter "Where the time went"."""

from __future__ import annotations

from answers import Answers

#: What most of the answers begin with.
SAVED = """
def saved_ms(trace, row):
    line = row.where.partition(": ")[0]
    return 1e3 * (trace.replay().seconds - trace.replay(without_wait_at=line).seconds)
"""

CHECKS = {
    "check_best_wait": Answers(
        name="best_wait",
        right=[
            # The shortest replay instead of the largest saving; the recorded length.
            """
def best_wait(trace):
    def length_without(row):
        replayed = trace.replay(without_wait_at=row.where.partition(": ")[0])
        return (replayed.end_ns - replayed.begin_ns) / 1e6

    row = min(trace.waits(), key=length_without)
    return row, (trace.end_ns - trace.begin_ns) / 1e6 - length_without(row)
""",
            # A loop, and a list as the result.
            SAVED
            + """
def best_wait(trace):
    best, most_ms = None, -1.0
    for row in trace.waits():
        if saved_ms(trace, row) > most_ms:
            best, most_ms = row, saved_ms(trace, row)
    return [best, most_ms]
""",
            # NumPy's argmax, and a NumPy number.
            SAVED
            + """
def best_wait(trace):
    rows = list(trace.waits())
    saved = np.array([saved_ms(trace, row) for row in rows])
    return rows[saved.argmax()], saved.max()
""",
            # Numbers of lines instead of names.
            """
def best_wait(trace):
    def end_ns(row):
        return trace.replay(without_wait_at=int(row.where.split(":")[1])).end_ns

    row = sorted(trace.waits(), key=end_ns)[0]
    return row, (trace.replay().end_ns - end_ns(row)) / 1e6
""",
            # The whole line, with its text.
            """
def best_wait(trace):
    def saved_s(row):
        return trace.replay().seconds - trace.replay(without_wait_at=row.where).seconds

    row = max(trace.waits(), key=saved_s)
    return row, 1e3 * saved_s(row)
""",
            # By the predictions.
            """
def best_wait(trace):
    as_it_was = trace.replay().prediction.ns
    saved = {}
    for number, row in enumerate(trace.waits()):
        line = row.where.partition(": ")[0]
        without = trace.replay(without_wait_at=line).prediction.ns
        saved[(as_it_was - without) / 1e6, number] = row
    most = max(saved)
    return saved[most], most[0]
""",
        ],
        wrong=[
            (
                "line",
                SAVED
                + """
def best_wait(trace):
    row = max(trace.waits(), key=lambda row: row.seconds)
    return row, saved_ms(trace, row)
""",
            ),
            # The second longest.
            (
                "line",
                SAVED
                + """
def best_wait(trace):
    row = sorted(trace.waits(), key=lambda row: row.seconds)[-2]
    return row, saved_ms(trace, row)
""",
            ),
            (
                "line",
                SAVED
                + """
def best_wait(trace):
    row = min(trace.waits(), key=lambda row: saved_ms(trace, row))
    return row, saved_ms(trace, row)
""",
            ),
            (
                "ms",
                SAVED
                + """
def best_wait(trace):
    row = max(trace.waits(), key=lambda row: saved_ms(trace, row))
    return row, 1e3 * row.seconds
""",
            ),
            (
                "ms",
                SAVED
                + """
def best_wait(trace):
    row = max(trace.waits(), key=lambda row: saved_ms(trace, row))
    return row, saved_ms(trace, row) / 1e3
""",
            ),
            (
                "ms",
                SAVED
                + """
def best_wait(trace):
    row = max(trace.waits(), key=lambda row: saved_ms(trace, row))
    lines = [row.where.partition(": ")[0] for row in trace.waits()]
    return row, 1e3 * (trace.seconds - trace.replay(without_wait_at=lines).seconds)
""",
            ),
            (
                "ms",
                """
def best_wait(trace):
    row = min(
        trace.waits(),
        key=lambda row: trace.replay(without_wait_at=row.where.partition(": ")[0]).seconds,
    )
    return row, 1e3 * trace.replay(without_wait_at=row.where.partition(": ")[0]).seconds
""",
            ),
            (
                "pair",
                SAVED
                + """
def best_wait(trace):
    return max(trace.waits(), key=lambda row: saved_ms(trace, row))
""",
            ),
            (
                "row",
                SAVED
                + """
def best_wait(trace):
    row = max(trace.waits(), key=lambda row: saved_ms(trace, row))
    return row.where, saved_ms(trace, row)
""",
            ),
            (
                "row",
                SAVED
                + """
def best_wait(trace):
    row = max(trace.waits(), key=lambda row: saved_ms(trace, row))
    return saved_ms(trace, row), row
""",
            ),
            (
                "number",
                SAVED
                + """
def best_wait(trace):
    row = max(trace.waits(), key=lambda row: saved_ms(trace, row))
    return row, f"{saved_ms(trace, row)} ms"
""",
            ),
            ("pair", "def best_wait(trace):\n    pass\n"),
        ],
    ),
}
