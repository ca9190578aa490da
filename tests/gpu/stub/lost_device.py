"""A GPU that fails while the host waits: is that said, and in time?

    python tests/gpu/stub/run.py lost_device

A product is issued, then every call of CUDA is answered with "an illegal memory access" (700), as
it is after a kernel has failed. Then the host waits, in a process of its own for each way:

    wait     for the array, on the main thread        asnumpy  for its values
    waitall  for everything                           confirm  for another device's answer
    issue    the failure comes before the product     exit     the program ends without waiting

Each must raise an MXNetError, or end, within LIMIT_S seconds; of one that hangs it says where. Exit
status 1 if one does not.
"""

from __future__ import annotations

import faulthandler
import re
import subprocess
import sys
import time

#: Less than the ten seconds after which a program that ends stops to wait for its GPUs.
LIMIT_S = 8
#: A process that has not come so far by then, its imports included, is ended.
MOST_S = 90
WAYS = ("wait", "asnumpy", "waitall", "confirm", "issue", "exit")


def fail(way: str) -> None:
    """In the process of its own: the last line printed says how it ended."""
    from common import stub

    # isort: split
    from d2lmini import MXNetError, gpu, nd
    from d2lmini.cuda.streams import check_unverified
    from d2lmini.device.devices import device_of

    x = nd.ones((1000,), ctx=gpu(0)) + 1
    nd.waitall()
    if way == "issue":
        stub.lose()
    y = x * 2
    if way != "issue":
        time.sleep(0.2)  # it is issued
        stub.lose()
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)  # imports do not count
    lane = device_of(gpu(0))._lanes["compute"]
    waits = {
        "wait": lambda: y.wait_to_read(),
        "asnumpy": lambda: y.asnumpy(),
        "waitall": lambda: nd.waitall(),
        "confirm": lambda: check_unverified({lane.stream: lane.stream.last.seq}),
        "issue": lambda: y.wait_to_read(),
        "exit": lambda: None,
    }
    try:
        waits[way]()
        print("nothing said", flush=True)
    except MXNetError as problem:
        print(f"raised: {str(problem).splitlines()[0]}", flush=True)


def verdict(way: str) -> tuple[bool, str]:
    """Is it well, and what happened?"""
    begin = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, __file__, "--child", way],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, errors = process.communicate(timeout=MOST_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
    in_time = process.returncode >= 0 and "Timeout (" not in errors
    if in_time:
        said = (out.splitlines() or errors.splitlines()[-1:] or ["nothing printed"])[-1]
    else:
        # The main thread is the last in the list, its innermost call the first.
        stack = errors.rpartition("(most recent call first):")[2]
        calls = re.findall(r'File ".*?(\w+/\w+\.py)", line (\d+) in (\w+)', stack)
        said = "HANGS in " + " < ".join(f"{name} ({file}:{line})" for file, line, name in calls[:3])
    expected = "nothing said" if way == "exit" else "raised"
    well = in_time and said.startswith(expected)
    ending = f"; ends with status {process.returncode}" if in_time else ""
    return well, f"{said[:150]}{ending}; {time.monotonic() - begin:.1f} s"


def main() -> int:
    all_well = True
    for way in sys.argv[1:] or WAYS:
        well, text = verdict(way)
        all_well = all_well and well
        print(f"{'ok  ' if well else 'FAIL'} {way:8} {text}", flush=True)
    return 0 if all_well else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        fail(sys.argv[2])
    else:
        sys.exit(main())
