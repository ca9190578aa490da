"""Everything that needs a real GPU, in one run: `make test-gpu`, ten minutes on a new machine.

    python tests/gpu/run.py [questions | rows | contract | order | chapter | measure | traces] ...

One GPU is enough: tests that want several make devices of their own on it. In the order in which
they run, of which the first two also fill CuPy's cache of kernels, by several processes at once,
for one kernel made with CUB takes its compiler 4 to 5 s:

questions  what no stand-in answers (`questions.py`): is a failed GPU told of, is CUB right
rows       every row of operations and layers, both ways, against NumPy and the CPU (`agreement.py`)
contract   the tests of devices, with two logical devices
order      tests of devices under compute-sanitizer, where that is installed
chapter    `multiple-gpus` from beginning to end
measure    a table of rates and times, written to tests/gpu/results with the machine's description
traces     a step's Chrome trace by PyTorch and by JAX, where they are installed (`peer_traces.py`)

A group that gave nothing to the GPU has failed, whatever its tests say. Ends with the groups that
failed, if any. `--fake` takes the fake of CUDA for `measure`, to see that the script works.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PATHS = [ROOT, ROOT / "tests", ROOT / "tests" / "tools", ROOT / "chapters", HERE]
sys.path[:0] = map(str, PATHS)

PROCESSES = min(8, os.cpu_count() or 1)
PYTEST = f"{sys.executable} -m pytest -q -p count_marks --timeout 600"
DEVICES = "tests/device/test_devices.py"

#: Group -> its command.
GROUPS = {
    "questions": f"{PYTEST} -n {PROCESSES} tests/gpu/questions.py",
    "rows": f"{PYTEST} -n {PROCESSES} tests/gpu/agreement.py",
    "contract": f"{PYTEST} {DEVICES} tests/device/test_devices_training.py "
    "tests/kvstore/test_kvstore.py "
    "tests/gluon/test_trainer_devices.py",
    "order": f"compute-sanitizer --error-exitcode 9 --target-processes all {PYTEST} {DEVICES}",
    "chapter": f"{sys.executable} tests/tools/run_chapters.py {ROOT} multiple-gpus",
}
ENVIRONMENT = {
    "D2LMINI_TEST_GPUS": "cuda",
    "D2LMINI_TEST_CTX": "gpu(0)",
    "D2LMINI_LOGICAL_GPUS": "2",
    "PYTHONPATH": os.pathsep.join([*map(str, PATHS), os.environ.get("PYTHONPATH", "")]),
}
#: What IPython runs first of all in a chapter's process.
STARTUP = "profile_default/startup/count.py"


def run_group(name: str) -> bool:
    """Run one group; whether it passed, and gave work to the GPU."""
    command = GROUPS[name].split()
    if shutil.which(command[0]) is None:
        print(f"== {name} NOT RUN: {command[0]} is not installed", flush=True)
        return True
    print(f"== {name}", flush=True)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        counts, startup = Path(folder) / "marks", Path(folder) / STARTUP
        startup.parent.mkdir(parents=True)
        startup.write_text("import count_marks\n", encoding="utf-8")
        environment = {
            **os.environ, **ENVIRONMENT, "D2LMINI_COUNT_MARKS": str(counts), "IPYTHONDIR": folder,
        }  # fmt: skip
        status = subprocess.run(command, cwd=ROOT, env=environment).returncode
        tasks = sum(map(int, counts.read_text().split())) if counts.exists() else 0
    print(f"-- {name}: {time.monotonic() - begin:.0f} s, {tasks} tasks given to the GPU")
    if not tasks:
        print(f"-- {name} FAILED: nothing of it ran on a GPU")
    return status == 0 and tasks > 0


def machine(cupy: Any) -> list[str]:
    """The GPU and what is around it, as lines."""
    import d2lmini

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return [
        f"{properties['totalGlobalMem'] / 2**30:.0f} GiB, {properties['multiProcessorCount']} "
        f"multiprocessors, compute capability {properties['major']}.{properties['minor']}; "
        f"{os.cpu_count()} cores, {platform.machine()}.",
        "",
        f"d2lmini {d2lmini.__version__}, CuPy {cupy.__version__}, CUDA "
        f"{cupy.cuda.runtime.runtimeGetVersion()}, driver "
        f"{cupy.cuda.runtime.driverGetVersion()}, Python {platform.python_version()}; "
        "`make test-gpu`, medians.",
    ]


def table(cupy: Any, **small: dict) -> tuple[str, str]:
    """The name of the GPU and the text of its table."""
    import measure

    from d2lmini import gpu

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    lines = [f"# {name}", "", *machine(cupy), "", "| what | figure | unit |", "| --- | --- | --- |"]
    for row in measure.all_rows(gpu(0), **small):
        print(row, flush=True)
        lines.append(str(row))
    return name, "\n".join(lines) + "\n"


def write_table(_group: str) -> bool:
    """Measure, and store the table under the GPU's name."""
    from d2lmini.cuda import module

    name, text = table(module.cupy())
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{slug}.md"
    path.write_text(text, encoding="utf-8")
    print(f"written to {path.relative_to(ROOT)}")
    return True


def write_traces(_group: str) -> bool:
    """Let other libraries record a step, in a process that has nothing of ours."""
    command = [sys.executable, str(HERE / "peer_traces.py"), str(RESULTS)]
    return subprocess.run(command).returncode == 0


#: Those that are no tests.
OTHERS = {"measure": write_table, "traces": write_traces}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="what needs a real GPU; all groups by default")
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, *OTHERS, []])
    parser.add_argument("--fake", action="store_true", help="measure on the fake; writes nothing")
    options = parser.parse_args(arguments)
    from d2lmini.cuda import module

    if options.fake:
        from fakes.cuda import fake_cuda

        small = {
            "launches": {"n": 5, "repeats": 1},
            "copies": {"mbytes": 1, "repeats": 1},
            "overlap": {"n": 16, "times": 2, "mbytes": 1},
            "products": {"n": 64, "repeats": 1},
            "lstm": {"hidden": 4, "steps": 3, "repeats": 1},
            "training": {"batch": 2, "width": 16, "repeats": 1},
        }
        with fake_cuda(1) as cupy, module.using(cupy):
            table(cupy, **small)
        return 0
    if not module.count():
        print(f"no GPU to test on: {module.missing()}")
        return 1
    groups = options.groups or [*GROUPS, *OTHERS]
    failed = [group for group in groups if not OTHERS.get(group, run_group)(group)]
    print(f"failed: {', '.join(failed)}" if failed else "all groups passed")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
