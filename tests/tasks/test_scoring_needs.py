"""What scoring will import and load is found before the first request; what it can do without is not asked for."""

from __future__ import annotations

from typing import Any

import pytest

from assay.errors import MissingDependencyError
from assay.tasks.scoring_needs import require_scoring_needs
from tests.small_tasks import Call, MakeTask

OTHERS = """
import functools

def unused(doc, results):
    import no_such_package

def helper(value):
    from no_such_package.inner import thing

def with_helper(doc, results):
    return {"exact_match": helper(results[0])}

def lazily(doc, results):
    import no_such_package
    return {"exact_match": 1.0}

def tolerantly(doc, results):
    import json
    try:
        import no_such_package
    except ImportError:
        no_such_package = None
    return {"exact_match": 1.0}

def from_a_part(doc, results):
    from yaml.no_such_part import thing

def by_hub(doc, results):
    import evaluate
    return {"exact_match": evaluate.load("no_such_metric").compute()}

def known(doc, results):
    import evaluate
    return {"exact_match": evaluate.load("squad_v2").compute()}
"""

MODULE = "'small' needs the Python module 'no_such_package.* for scoring, .*: pip install no_such_package$"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"process_results": Call("lazily")}, MODULE),
        ({"process_results": Call("with_helper")}, MODULE),
        ({"metric_list": [{"metric": Call("lazily"), "aggregation": "mean", "higher_is_better": True}]}, MODULE),
        (
            {"process_results": Call("from_a_part")},
            r"module 'yaml.no_such_part' for scoring, which the installed PyYAML [\d.]+ does not have: the task is wr",
        ),
        (
            {"process_results": Call("by_hub")},
            "'small' scores with the metric 'no_such_metric' of the",
        ),
    ],
    ids=str,
)
def test_what_is_missing(make_task: MakeTask, change: dict[str, Any], message: str) -> None:
    with pytest.raises(MissingDependencyError, match=message):
        require_scoring_needs({"small": make_task(OTHERS, **change)})


@pytest.mark.parametrize(
    "change", [{}, {"process_results": Call("tolerantly")}, {"process_results": Call("known")}], ids=str
)
def test_what_is_not(make_task: MakeTask, change: dict[str, Any]) -> None:
    require_scoring_needs({"small": make_task(OTHERS, **change)})
