"""The memory of this process, measured alike on Linux, macOS and Windows.

>>> from d2lmini import d2l
>>> before = d2l.get_mem()
>>> before > 1
True

This is the operating system's view of the whole process: Python, NumPy, buffers in use and buffers
that the pool has cached. `d2lmini.storage.stats(ctx)` gives the exact bytes of the arrays of one
device.
"""


def get_mem() -> float:
    """Resident set size of this process in MB (10**6 bytes).

    A buffer counts once it was written, page by page, and for as long as the pool keeps it. The
    book's first version asked `ps`, whose kilobytes have 1024 bytes: its MB were 2.4 % larger.
    """
    # Imported here: `import d2lmini` must stay quick, and few programs ask.
    import psutil

    return psutil.Process().memory_info().rss / 1e6
