"""Files that the books download: found in a folder of this machine, never fetched by themselves.

    DATA_HUB["time_machine"] = (DATA_URL + "timemachine.txt", "090b5e7e...")
    download("time_machine")      # ../data/timemachine.txt, data/timemachine.txt, or in $D2L_DATA

A file that is not there is an error with its source and the places that were looked at.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

DATA_URL = "http://d2l-data.s3-accelerate.amazonaws.com/"
#: name -> (address, SHA-1 of the file).
DATA_HUB: dict[str, tuple[str, str]] = {}


def find_file(name: str, source: str, folder: str = "../data") -> Path:
    """The file of that name in the folder, in `../data` or `data`, as the books' programs expect,
    or where the environment variable D2L_DATA says. FileNotFoundError tells the source, which is
    a sentence: "Fetch ADDRESS"."""
    folders = dict.fromkeys([folder, "../data", "data", os.environ.get("D2L_DATA") or "data"])
    for place in folders:
        path = Path(place) / name
        if path.is_file():
            return path
    looked = ", ".join(str(Path(place).resolve()) for place in folders)
    raise FileNotFoundError(
        f"{name} is not here, and d2lmini fetches nothing by itself. {source} and put the file "
        f"into one of {looked}, or let D2L_DATA name its folder"
    )


def download(url: str, folder: str = "../data", sha1_hash: str | None = None) -> str:
    """The path of the file of an address, or of a name in DATA_HUB. FileNotFoundError if the file
    is in none of the places; ValueError if its SHA-1 is another."""
    if not url.startswith("http"):
        if url not in DATA_HUB:
            raise ValueError(f"download: {url!r} is no address and no name in DATA_HUB")
        url, sha1_hash = DATA_HUB[url]
    path = find_file(url.rsplit("/", 1)[-1], f"Fetch {url}", folder)
    if sha1_hash and hashlib.sha1(path.read_bytes()).hexdigest() != sha1_hash:
        raise ValueError(f"{path} has another SHA-1 than {sha1_hash}: fetch it from {url}")
    return str(path)
