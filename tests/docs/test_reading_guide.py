"""The reading guide follows four calls: each program calls what its table names, in that order."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import d2lmini

LIBRARY = Path(d2lmini.__file__).parent
GUIDE = (LIBRARY.parent / "docs/reading-guide.md").read_text(encoding="utf-8")
WALKS = GUIDE.partition("## Four calls to follow\n")[2].partition("\n## ")[0].split("\n### ")[1:]
LINK = re.compile(r"\[`(?:\w+\.)?(\w+)`\]\(\.\./d2lmini/([\w/]+\.py)\)")

# In a process of its own: no plan and no program is known there, and no worker has started.
FOLLOW = """
import json, sys, threading
import d2lmini

library, caller, calls = sys.argv[1], threading.get_ident(), []

def follow(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(library):
        thread = "yours" if threading.get_ident() == caller else "a worker"
        file = code.co_filename[len(library) + 1 :].replace("\\\\", "/")
        calls.append((thread, file, code.co_name))

program = compile(sys.stdin.read(), "walk.py", "exec")
threading.setprofile(follow)
sys.setprofile(follow)
exec(program, {"__name__": "walk"})
sys.setprofile(None)
threading.setprofile(None)
d2lmini.nd.waitall()
print(json.dumps(calls))
"""


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.partition("\n")[0])
def test_a_walk_is_what_runs(walk):
    program = walk.partition("```python\n")[2].partition("```")[0]
    command = [sys.executable, "-c", FOLLOW, str(LIBRARY)]
    ran = subprocess.run(command, input=program, capture_output=True, text=True, check=True)
    calls = [tuple(call) for call in json.loads(ran.stdout)]
    rows = [row for row in walk.splitlines() if LINK.search(row)]
    assert len(rows) > 4
    reached = {"yours": 0, "a worker": 0}
    for row in rows:
        thread = row.split("|")[3].strip()
        for name, file in LINK.findall(row):
            call = (thread, file, name)
            assert call in calls[reached[thread] :], f"{name} of {file} is not called here: {row}"
            reached[thread] = calls.index(call, reached[thread]) + 1
