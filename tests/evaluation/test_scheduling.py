"""How close a run comes to the shortest possible time: the engine's own code, on simulated time and server."""

from __future__ import annotations

import pytest

from assay.client.auto_concurrency import AutoConcurrency
from assay.client.concurrency import Concurrency
from benchmarks.scheduling import (
    COSTS,
    TASKS,
    Outcome,
    Workload,
    longest_task_first,
    one_queue,
    simulate,
    task_after_task,
)
from benchmarks.simulated_server import ServerSpec

# A quarter of the documents on a quarter of the server, whose full batch is as fast as that of the whole one.
SERVER = ServerSpec(64, 10_000_000, COSTS._replace(sequence=4 * COSTS.sequence))
TIGHT = SERVER._replace(kv_tokens=25_000)
ALWAYS_FULL = 70
WITHOUT_THE_LONGEST = [shape for shape in TASKS if shape.name != "contest"]


@pytest.fixture(scope="module")
def work() -> Workload:
    return Workload(WITHOUT_THE_LONGEST, share=0.25)


def ratio(work: Workload, server: ServerSpec, outcome: Outcome) -> float:
    return outcome.seconds / work.least_seconds(server)


def test_longest_task_first_wastes_little(work: Workload) -> None:
    assert ratio(work, SERVER, simulate(work, SERVER, longest_task_first, Concurrency(ALWAYS_FULL))) <= 1.05
    assert ratio(work, TIGHT, simulate(work, TIGHT, longest_task_first, Concurrency(ALWAYS_FULL))) <= 1.20


def test_a_barrier_after_every_task_and_the_datasets_order_waste_more(work: Workload) -> None:
    ours, queue, barrier = (
        simulate(work, SERVER, order, Concurrency(ALWAYS_FULL)).seconds
        for order in (longest_task_first, one_queue, task_after_task)
    )
    assert ours < queue < barrier


@pytest.mark.parametrize("tells_load", [True, False])
def test_auto_is_nearly_as_fast_as_the_best_fixed_number(work: Workload, tells_load: bool) -> None:
    outcome = simulate(work, SERVER, longest_task_first, AutoConcurrency(), tells_load=tells_load)
    assert ratio(work, SERVER, outcome) <= 1.08
    assert 64 <= outcome.concurrency.limit <= 256


def test_a_small_server_is_not_flooded(work: Workload) -> None:
    small = ServerSpec(4, 10_000_000, COSTS)
    few = Workload(WITHOUT_THE_LONGEST, share=0.05)
    outcome = simulate(few, small, longest_task_first, AutoConcurrency())
    assert 4 < outcome.concurrency.limit <= 6
    assert ratio(few, small, outcome) <= 1.05


def test_it_comes_out_the_same_every_time(work: Workload) -> None:
    first, second = (simulate(work, TIGHT, longest_task_first, AutoConcurrency()) for _ in range(2))
    assert first.latencies == second.latencies
