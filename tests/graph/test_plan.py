"""The memory plan: no two buffers that are alive at once overlap, whatever the lives are."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from d2lmini.graph.plan import ALIGNMENT, Life, align, arrange

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


@given(lives)
def test_the_arena_holds_them_all_and_no_more_than_all(found):
    plan = arrange(found)
    for life, offset in zip(found, plan.offsets):
        assert offset % ALIGNMENT == 0 <= offset
        assert offset + life.nbytes <= plan.nbytes
    assert plan.nbytes <= sum(align(life.nbytes) for life in found)
    assert plan.separately == sum(life.nbytes for life in found)


@given(lives)
def test_the_arena_is_no_smaller_than_what_lives_at_once(found):
    plan = arrange(found)
    for step in range(30):
        alive = [life for life in found if life.begin <= step <= life.end]
        assert plan.nbytes >= sum(life.nbytes for life in alive)


def test_a_chain_takes_two_places():
    """Each needs the one before: places are used in turns."""
    plan = arrange([Life(f"h{i}", 1 << 20, i, i + 1) for i in range(10)])
    assert plan.nbytes == 2 << 20
    assert plan.offsets == [0, 1 << 20] * 5


def test_a_small_one_goes_into_the_gap_below():
    plan = arrange([Life("a", 640, 0, 1), Life("b", 1280, 1, 2), Life("c", 128, 2, 3)])
    assert plan.offsets == [1280, 0, 1280]


def test_the_table_shows_when_each_is_needed():
    plan = arrange([Life("h", 100, 0, 2), Life("y", 200, 2, 4)])
    first, second, total = str(plan).splitlines()
    assert first.startswith("h") and first.endswith("  ===")
    assert second.startswith("y") and second.endswith("    ===")
    assert total == f"{plan.nbytes} bytes in place of 300"


def test_nothing_needs_nothing():
    assert arrange([]).nbytes == 0
