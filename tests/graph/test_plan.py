"""The memory plan: no two buffers that are alive at once overlap, whatever the lives are."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from d2lmini.graph.plan import Life, arrange

lives = st.lists(
    st.builds(
        lambda nbytes, begin, length: Life("b", nbytes, begin, begin + length),
        st.integers(0, 2000),
        st.integers(0, 20),
        st.integers(0, 8),
    ),
    max_size=25,
)


@given(lives)
def test_live_buffers_never_overlap(found):
    plan = arrange(found)
    placed = list(zip(found, plan.offsets))
    for (a, at_a), (b, at_b) in combinations(placed, 2):
        if a.meets(b) and a.nbytes and b.nbytes:
            assert at_a + a.nbytes <= at_b or at_b + b.nbytes <= at_a


def test_the_table_shows_when_each_is_needed():
    plan = arrange([Life("h", 100, 0, 2), Life("y", 200, 2, 4)])
    first, second, total = str(plan).splitlines()
    assert first.startswith("h") and first.endswith("  ===")
    assert second.startswith("y") and second.endswith("    ===")
    assert total == f"{plan.nbytes} bytes in place of 300"
