"""Groups as they are read are those that a state in memory has, or reading says that it cannot be."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as some

from assay.helm import MetricSpec, RequestState, create_metric
from assay.helm.groups import OutOfOrderError, groups_as_read, groups_in_memory
from tests.helm.states import generation, result, state

requests = some.lists(some.tuples(some.integers(0, 2), some.integers(0, 4)), unique=True, max_size=15)


@settings(deadline=None)
@given(requests, some.booleans(), some.integers(1, 3))
def test_reading_gives_the_groups_of_memory_or_refuses(
    requests: list[tuple[int, int]], is_sorted: bool, trials: int
) -> None:
    places = sorted(requests) if is_sorted else requests
    run = state([generation(number, result("yes"), trial=trial) for trial, number in places], num_train_trials=trials)
    try:
        read = list(groups_as_read(run.request_states, run.adapter_spec))
    except OutOfOrderError:
        assert places != [(trial, number) for trial in range(3) for number in range(5)]
        return
    assert read == list(groups_in_memory(run))


def test_whole_trials_in_order_are_read() -> None:
    run = state([generation(n, result("yes"), trial=t) for t in range(3) for n in range(7000)], num_train_trials=3)
    assert sum(1 for _ in groups_as_read(run.request_states, run.adapter_spec)) == 21000


def test_an_instance_that_comes_back_is_noticed_long_before_the_end() -> None:
    numbers = [*range(3000), 0, *range(3000, 9000)]
    run = state([generation(number, result("yes")) for number in numbers])
    taken = 0
    try:
        for _ in groups_as_read(run.request_states, run.adapter_spec):
            taken += 1
    except OutOfOrderError:
        pass
    assert 3000 < taken < 5000


def test_a_state_knows_its_instances() -> None:
    run = state([generation(number, result("yes"), trial=trial) for trial in range(2) for number in (1, 0)])
    assert [instance.id for instance in run.instances] == ["id1", "id0"]


def test_requests_that_are_in_no_statistic_are_named() -> None:
    run = state([generation(0, result("yes"), trial=trial) for trial in (-1, 0, 2)], num_train_trials=2)
    astray = generation(1, result("yes")).to_builtins() | {"reference_index": 99}
    run = msgspec.structs.replace(run, request_states=[*run.request_states, RequestState.from_builtins(astray)])
    metric = create_metric(MetricSpec("helm.benchmark.metrics.basic_metrics.BasicGenerationMetric", {"names": []}))
    evaluated = metric.evaluate(run, None)
    assert [record.train_trial_index for record in evaluated.per_instance_stats] == [0]
    assert evaluated.unscored == [
        "instance id0, trial -1: the run has no such trial; its num_train_trials is 2",
        "instance id1, trial 0: there is no reference 99",
        "instance id0, trial 2: the run has no such trial; its num_train_trials is 2",
    ]


def test_trials_that_are_not_there_take_no_time() -> None:
    run = state([generation(0, result("yes"))], num_train_trials=2**62)
    assert len(list(groups_in_memory(run))) == 1


def test_a_request_whose_own_instance_lacks_the_reference_is_no_request_for_it() -> None:
    values = [generation(0, result("yes"), golds=("yes", "no")).to_builtins() | {"reference_index": n} for n in (0, 1)]
    values[1]["instance"]["references"] = values[1]["instance"]["references"][:1]
    run = state([RequestState.from_builtins(value) for value in values], method="multiple_choice_separate_original")
    assert [len(group.references) for group in groups_in_memory(run)] == [1]
