"""Evaluates scenario states with the installed HELM: one JSON object a line in, one out.

Run by the interpreter that has crfm-helm, which need not be the one that runs the tests.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import sys
from typing import Any

_WORDS = re.compile(r" ?\w+| ?[^\s\w]+|\s")


class _Windows:
    """Stands for the model's window service: only its token counts matter."""

    def get_num_tokens(self, text: str) -> int:
        return len(_WORDS.findall(text))

    def tokenize(self, text: str) -> list[str]:
        return _WORDS.findall(text)


def main() -> None:
    out = sys.stdout
    sys.stdout = sys.stderr
    metric = _helm("benchmark.metrics.metric")
    state_class = _helm("benchmark.adaptation.scenario_state").ScenarioState
    from_json = _helm("common.codec").from_json
    asdict_without_nones = _helm("common.general").asdict_without_nones
    factory = _helm("benchmark.window_services.window_service_factory").WindowServiceFactory
    factory.get_window_service = staticmethod(lambda *_: _Windows())
    for line in sys.stdin:
        job = json.loads(line)
        reply: dict[str, Any] = {"stats": [], "per_instance_stats": []}
        try:
            state = _with_shared_instances(from_json(json.dumps(job["state"]).encode(), state_class))
            _give_back_tests(state, job["state"])
            for spec in job["metrics"]:
                result = metric.create_metric(metric.MetricSpec(**spec)).evaluate(state, None, "", 1)
                reply["stats"] += [asdict_without_nones(stat) for stat in result.aggregated_stats]
                reply["per_instance_stats"] += [asdict_without_nones(stats) for stats in result.per_instance_stats]
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=out, flush=True)


def _helm(name: str) -> Any:
    return importlib.import_module(f"helm.{name}")


def _with_shared_instances(state: Any) -> Any:
    """HELM tells instances apart by identity, which a file does not keep."""
    shared: dict[Any, Any] = {}
    states = []
    for one in state.request_states:
        instance = one.instance
        key = (instance.id, instance.split, instance.sub_split, instance.perturbation)
        states.append(dataclasses.replace(one, instance=shared.setdefault(key, instance)))
    return type(state)(state.adapter_spec, states, state.annotator_specs)


def _give_back_tests(state: Any, saved: dict[str, Any]) -> None:
    """HELM's references of programming problems carry tests, which its files do not keep."""
    code_reference = _helm("benchmark.scenarios.code_scenario").CodeReference
    for one, saved_one in zip(state.request_states, saved["request_states"], strict=True):
        for place, saved_reference in enumerate(saved_one["instance"]["references"]):
            if tests := saved_reference.get("test_cases"):
                theirs = one.instance.references[place]
                one.instance.references[place] = code_reference(
                    test_cases=tests, output=theirs.output, tags=theirs.tags
                )


if __name__ == "__main__":
    main()
