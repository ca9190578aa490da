"""d2l.traffic: what it counts, and what not."""

from __future__ import annotations

import numpy as np

from d2lmini import cpu, d2l, nd, virtual_gpus


def test_both_ways_and_the_cpu():
    with virtual_gpus(3, link_gb_s=100) as (a, b, c):
        x = nd.ones((10, 5), ctx=a)
        with d2l.traffic() as links:
            x[2:4].copyto(b)  # 10 numbers of a view
            x.astype("float16").copyto(b)
            x.copyto(c)
            y = nd.array(np.zeros(3), ctx=c)
            y.asnumpy()
            y.copyto(cpu())
            x + 1
    assert links.between == {
        ("gpu(0)", "gpu(1)"): 40 + 100,
        ("gpu(0)", "gpu(2)"): 200,
        ("cpu", "gpu(2)"): 12,
        ("gpu(2)", "cpu"): 24,
    }
    assert links.copies["gpu(0)", "gpu(1)"] == 2 and sum(links.copies.values()) == 6
    assert str(links).splitlines()[1:3] == [
        "gpu(0) -> gpu(1): 140 bytes in 2 copies",
        "gpu(0) -> gpu(2): 200 bytes in 1 copy",
    ]
    assert links.nbytes == 376
