"""Two hosts that are namespaces of this machine, with a wire of so many Mbit/s between them.

Linux only, and only for root: `ip` makes the hosts, `tc` the rate. MPI is to start its processes by
ssh; a few lines of shell stand in for that, and put each into the namespace of its address. MPI
would find out that both share their memory and go round the wire: it is told to use TCP.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOSTS = {"d2lmini-a": "10.77.0.1", "d2lmini-b": "10.77.0.2"}
_SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
case "$1" in
%s
esac
shift
exec ip netns exec $space /bin/sh -c "$*"
"""


def missing() -> str:
    """Why there can be no such hosts here; empty if there can."""
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"there is no {tool} (Debian and Ubuntu: apt install iproute2)"
    done = subprocess.run(["ip", "netns", "add", "d2lmini-try"], capture_output=True, text=True)
    if done.returncode:
        return f"ip netns add: {done.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", "d2lmini-try"], check=True)
    return ""


@contextmanager
def hosts(mbit: float) -> Iterator[list[str]]:
    """While it lasts the hosts are there; gives what starts one process on each, to be followed by
    the program. CalledProcessError if the system refuses."""
    (a, _), (b, _) = _HOSTS.items()
    with tempfile.TemporaryDirectory() as folder:
        ssh = Path(folder) / "ssh"
        cases = [f"{address}) space={name};;" for name, address in _HOSTS.items()]
        ssh.write_text(_SSH % "\n".join(cases))
        ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
        try:
            for name in _HOSTS:
                _ip("netns", "add", name)
            _ip("link", "add", "d2la", "netns", a, "type", "veth", "peer", "d2lb", "netns", b)
            for (name, address), end in zip(_HOSTS.items(), ("d2la", "d2lb")):
                _ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
                for device in ("lo", end):
                    _ip("-n", name, "link", "set", device, "up")
                shape = f"root tbf rate {mbit:g}mbit burst 64kb latency 50ms".split()
                _ip("netns", "exec", name, "tc", "qdisc", "add", "dev", end, *shape)
            threads = str(max(1, (os.cpu_count() or 1) // 2))
            yield [
                "env", "UCX_TLS=tcp,self", f"OPENBLAS_NUM_THREADS={threads}",
                f"OMP_NUM_THREADS={threads}", f"D2LMINI_CPU_WORKERS={threads}",
                "ip", "netns", "exec", a, _mpiexec(), "-launcher", "ssh",
                "-launcher-exec", str(ssh), "-hosts", ",".join(_HOSTS.values()),
                "-ppn", "1", "-n", "2",
            ]  # fmt: skip
        finally:
            for name in _HOSTS:
                subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _mpiexec() -> str:
    from d2lmini.distributed.launch import _mpiexec as found

    return found()[0]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
