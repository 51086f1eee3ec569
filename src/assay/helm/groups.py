"""Groups a run's request states by trial and instance, in HELM's order of evaluation."""

from __future__ import annotations

from array import array
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, cast

from assay.errors import FileFormatError
from assay.helm.adaptation import AdapterSpec, InstanceKey, RequestState, ScenarioState, instance_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from assay.helm.scenario import Instance

LANGUAGE_MODELING = "language_modeling"
"""The adaptation method where an instance may have several requests, each evaluated on its own."""


class Group(NamedTuple):
    """The requests of one trial for one instance."""

    trial: int
    instance: Instance
    generation: RequestState | None
    """The request for an answer, if it has one."""
    references: list[RequestState]
    """The requests for each reference's probability; empty if one of them has no result."""
    left_out: tuple[str, ...]
    """For each part that cannot be scored, a line with the reason."""
    is_counted: bool = True
    """Whether the trial belongs to the run; if not, no statistic by instance counts the group."""

    @property
    def label(self) -> str:
        """The group's name in messages."""
        return _label(self.trial, self.instance)

    @property
    def answer(self) -> RequestState:
        """The answered request of a group that has one."""
        return cast("RequestState", self.generation)


class OutOfOrderError(Exception):
    """The states are in an order that cannot be evaluated as a stream."""


def groups_in_memory(state: ScenarioState) -> Iterator[Group]:
    """All groups: trial by trial, instances in the order of their first request in the run.

    Raises:
        FileFormatError: A request occurs twice, or an instance has no id.
    """
    order: dict[InstanceKey, int] = {}
    trials: dict[int, dict[InstanceKey, list[RequestState]]] = {}
    for request_state in state.request_states:
        key = instance_key(request_state.instance)
        order.setdefault(key, len(order))
        trials.setdefault(request_state.train_trial_index, {}).setdefault(key, []).append(request_state)
    for trial, states in sorted(trials.items()):
        for key in sorted(states, key=order.__getitem__):
            yield _group(state.adapter_spec, trial, states[key])


def groups_as_read(states: Iterable[RequestState], adapter_spec: AdapterSpec) -> Iterator[Group]:
    """The same groups from a stream of states, which are not kept.

    Raises:
        OutOfOrderError: The states are not sorted by trial and instance; `groups_in_memory` accepts any order.
        FileFormatError: A request occurs twice, or an instance has no id.
    """
    order = _InstanceOrder()
    for (trial, key), members in groupby(states, key=_trial_and_instance):
        order.check(trial, hash(key))
        yield _group(adapter_spec, trial, list(members))
    order.check_all()


class _InstanceOrder:
    """Checks that every trial has the instances in the same order, with eight bytes an instance.

    It keeps hashes of the instances. If two collide, the states only seem out of order.
    """

    def __init__(self) -> None:
        self._instances = array("q")
        self._trial = 0
        self._next = 0
        """Number of instances before the next one."""
        self._checked_at = 1 << 12

    def check(self, trial: int, instance: int) -> None:
        """Check the next group.

        An instance that occurs again in the wrong place looks like a new one; `check_all` finds it.

        Raises:
            OutOfOrderError: The trials are not sorted.
        """
        if trial != self._trial:
            if trial < self._trial:
                raise OutOfOrderError
            self._trial, self._next = trial, 0
        while self._next < len(self._instances) and self._instances[self._next] != instance:
            self._next += 1
        if self._next == len(self._instances):
            self._instances.append(instance)
        self._next += 1
        if len(self._instances) > self._checked_at:
            self.check_all()
            self._checked_at *= 2

    def check_all(self) -> None:
        """Check that no instance occurs twice.

        Raises:
            OutOfOrderError: One does.
        """
        import numpy as np

        ordered = np.sort(np.array(self._instances))
        if (ordered[1:] == ordered[:-1]).any():
            raise OutOfOrderError


def _trial_and_instance(state: RequestState) -> tuple[int, InstanceKey]:
    return state.train_trial_index, instance_key(state.instance)


def _group(adapter_spec: AdapterSpec, trial: int, states: list[RequestState]) -> Group:
    instance = states[0].instance
    label = _label(trial, instance)
    if not 0 <= trial < adapter_spec.num_train_trials:
        line = f"{label}: the run has no such trial; its num_train_trials is {adapter_spec.num_train_trials}"
        return Group(trial, instance, None, [], (line,), is_counted=False)
    if adapter_spec.method == LANGUAGE_MODELING:
        return Group(trial, instance, None, [], _without_result(label, states))
    generations = [state for state in states if state.reference_index is None]
    references = [
        state
        for state in states
        if state.reference_index is not None
        and 0 <= state.reference_index < min(len(instance.references), len(state.instance.references))
    ]
    references.sort(key=lambda state: state.reference_index or 0)
    if len(generations) > 1 or len({(state.reference_index, state.request_mode) for state in references}) < len(
        references
    ):
        raise FileFormatError(f"a request state occurs twice: {label}")
    known = [*generations, *references]
    left_out: list[str] = []
    if len(known) < len(states):
        indices = {state.reference_index for state in states if state.reference_index is not None}
        astray = sorted(index for index in indices if not 0 <= index < len(instance.references))
        left_out += [f"{label}: there is no reference {index}" for index in astray]
    generation = generations[0] if generations and generations[0].is_answered else None
    if any(not state.is_answered for state in references):
        references = []
    return Group(trial, instance, generation, references, (*left_out, *_without_result(label, known)))


def _without_result(label: str, states: Iterable[RequestState]) -> tuple[str, ...]:
    return () if all(state.is_answered for state in states) else (f"{label}: a request has no result",)


def _label(trial: int, instance: Instance) -> str:
    changed = f", perturbation {instance.perturbation.name}" if instance.perturbation else ""
    return f"instance {instance.id}{changed}, trial {trial}"
