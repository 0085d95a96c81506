"""The polling window adapts: quick results make it long, and after slow ones it costs nothing."""

import pytest

from aiofabric.cq.polling import Window

pytestmark = pytest.mark.once

LIMIT = 60_000


def cost(window: Window, waits: int, *, fast_path: bool) -> int:
    """Nanoseconds of polling in ``waits`` waits whose result comes at once, or after every window."""
    spent = 0
    for _ in range(waits):
        if length := window.open():
            if fast_path:
                window.hit()
            else:
                spent += length
                window.miss()
    return spent


def test_quick_answers_keep_it_whole() -> None:
    window = Window(LIMIT)
    cost(window, 100, fast_path=True)
    assert window.open() == LIMIT
    assert (window.hits, window.misses) == (100, 0)


def test_slow_answers_end_in_next_to_nothing() -> None:
    window = Window(LIMIT)
    cost(window, 1000, fast_path=False)
    assert cost(window, 1000, fast_path=False) / 1000 < LIMIT / 50


def test_what_is_tried_after_waits_were_left_out_is_half_the_limit() -> None:
    """A shorter one would miss the first quick answer: the peer, too, has just been woken."""
    window = Window(LIMIT)
    cost(window, 3, fast_path=False)
    for _ in range(6):
        while not (length := window.open()):
            pass
        assert length == LIMIT // 2
        window.miss()


def test_answers_that_are_always_late_have_nothing_tried() -> None:
    window = Window(LIMIT)
    for _ in range(2):
        assert window.open()
        window.miss()
        window.late()
    for _ in range(1000):
        assert not window.open()
        window.late()
    window.soon()
    while not window.open():
        pass
    window.hit()
    assert window.open() == LIMIT


def test_one_late_answer_is_a_pause() -> None:
    window = Window(LIMIT)
    for _ in range(10):
        window.late()
        assert window.open()
        window.hit()


def test_answers_soon_after_the_window_have_all_of_it_tried_before_long() -> None:
    """Both sides sleep: a side that polls for longer than a wake-up takes gets its result in time."""
    window = Window(LIMIT)
    cost(window, 1000, fast_path=False)
    for _ in range(6):
        window.soon()
        left_out = 0
        while not (length := window.open()):
            left_out += 1
        assert left_out <= 16
        assert length == LIMIT
        window.miss()


def test_pattern_that_turns_quick_is_found_again() -> None:
    window = Window(LIMIT)
    cost(window, 1000, fast_path=False)
    cost(window, 200, fast_path=True)
    assert window.open() == LIMIT


def test_single_miss_leaves_no_wait_out() -> None:
    window = Window(LIMIT)
    window.miss()
    assert window.open() > 0


def test_length_stays_between_its_bounds() -> None:
    window = Window(LIMIT)
    for n in range(1000):
        (window.hit if n % 7 == 0 else window.miss)()
        length = window.open()
        assert length == 0 or 4_000 <= length <= LIMIT


def test_without_a_limit_it_never_looks() -> None:
    window = Window(0)
    assert cost(window, 100, fast_path=False) == 0
