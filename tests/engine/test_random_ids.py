"""Ids are drawn in advance, and still nobody gets one twice."""

import os
from concurrent.futures import ThreadPoolExecutor

from perdure.engine.random_ids import new_request_id, new_run_id, new_seed, random_bytes


def test_threads_never_draw_the_same_bytes() -> None:
    with ThreadPoolExecutor(8) as threads:
        drawn = [
            piece
            for pieces in threads.map(lambda _: [random_bytes() for _ in range(2_000)], range(8))
            for piece in pieces
        ]

    assert len(set(drawn)) == 16_000
    assert {len(piece) for piece in drawn} == {16}


def test_a_forked_process_draws_its_own() -> None:
    random_bytes()  # some are kept now
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, b"".join(random_bytes() for _ in range(300)))
        os._exit(0)
    os.waitpid(child, 0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        text = pipe.read()

    drawn_there = {text[at : at + 16] for at in range(0, len(text), 16)}
    assert len(drawn_there) == 300
    assert drawn_there.isdisjoint(random_bytes() for _ in range(600))


def test_ids_sort_by_time_and_seeds_fit_into_63_bits() -> None:
    assert new_run_id(1_000_000) < new_run_id(1_001_000) < new_run_id(10**15)
    assert len(new_run_id(0)) == 26 and len(new_request_id()) == 16
    assert all(0 <= new_seed() < 2**63 for _ in range(100))
