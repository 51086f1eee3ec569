"""Names out of files become nothing but metrics, with a stand-in for the installed HELM."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.errors import MissingDependencyError, SpecificationError, UnknownMetricError, UnsupportedTaskError
from assay.helm import MetricSpec, UnsafeCode, create_metric
from assay.helm.installed_helm import InstalledHelmMetric
from assay.helm.selection import import_plugins
from tests.helm.states import state

METRICS = "helm.benchmark.metrics."
_MODULES = {
    "metric": "class MetricInterface: pass\nclass Metric(MetricInterface): pass\n",
    "toxicity_metrics": (
        "import os\nfrom pathlib import Path\nfrom helm.benchmark.metrics.metric import Metric\n"
        "class ToxicityMetric(Metric): pass\n"
        "class NoNetworkMetric(Metric):\n"
        "    def __init__(self): raise OSError('no network')\n"
        "def made(): raise AssertionError('called')\n"
    ),
    "code_metrics": "from helm.benchmark.metrics.metric import Metric\nclass APPSMetric(Metric): pass\n",
    "aliases": "from helm.benchmark.metrics.code_metrics import APPSMetric\n",
    "unitxt_metrics": (
        "from helm.benchmark.metrics.metric import MetricInterface\n"
        "class UnitxtMetric(MetricInterface):\n"
        "    made = 0\n"
        "    def __init__(self, **recipe): UnitxtMetric.made += 1\n"
    ),
    "comet_metric": (
        "from helm.benchmark.metrics.metric import Metric\n"
        "class CometMetric(Metric):\n"
        "    def __init__(self, task, model_name='Unbabel/x'): pass\n"
    ),
    "output_processing_metric": (
        "from helm.benchmark.metrics.metric import MetricInterface\n"
        "class OutputProcessingMetric(MetricInterface):\n"
        "    def __init__(self, processor, metric_specs): pass\n"
    ),
    "basic_metrics": "from helm.benchmark.metrics.metric import Metric\nclass BasicGenerationMetric(Metric): pass\n",
    "of_tomorrow": "import a_package_that_is_not_there\n",
}
_OTHER_MODULES = {
    "common/general": "from dataclasses import asdict as asdict_without_nones\n",
    "common/codec": "def from_json(text, kind): return kind(None, [], None)\n",
    "benchmark/adaptation/scenario_state": (
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class ScenarioState:\n"
        "    adapter_spec: object\n"
        "    request_states: list\n"
        "    annotator_specs: object\n"
    ),
}
STRIP = f"{METRICS}output_processors.strip"


@pytest.fixture(autouse=True)
def installed_helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path with a HELM of a few lines, gone again afterwards."""
    folder = tmp_path / "site"
    metrics = folder / "helm" / "benchmark" / "metrics"
    metrics.mkdir(parents=True)
    for name, text in _OTHER_MODULES.items():
        module = folder / "helm" / f"{name}.py"
        module.parent.mkdir(exist_ok=True)
        module.write_text(text)
        (module.parent / "__init__.py").touch()
    for package in (folder / "helm", metrics.parent, metrics):
        (package / "__init__.py").touch()
    for name, text in _MODULES.items():
        (metrics / f"{name}.py").write_text(text)
    before = {name: module for name, module in sys.modules.items() if _is_helms(name)}
    for name in before:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [name for name in sys.modules if _is_helms(name) or name.startswith("users_own")]:
        del sys.modules[name]


def _is_helms(name: str) -> bool:
    return name.partition(".")[0] == "helm"


def make(class_name: str, **args: Any) -> Any:
    return create_metric(MetricSpec(class_name, args))


@pytest.mark.parametrize(
    "class_name",
    [
        "os.system",
        "subprocess.Popen",
        "builtins.exec",
        f"{METRICS}toxicity_metrics.made",
        f"{METRICS}toxicity_metrics.os",
        f"{METRICS}toxicity_metrics.Path",
        f"{METRICS}toxicity_metrics.os.system",
        f"{METRICS}toxicity_metrics.",
        f"{METRICS}nonesuch.Metric",
        METRICS,
        "Metric",
        "",
    ],
)
def test_what_is_no_metric_is_not_made(class_name: str) -> None:
    with pytest.raises(UnknownMetricError):
        make(class_name, command="false")


@pytest.mark.parametrize("class_name", ["os.system", "builtins.exec"])
def test_what_is_no_metric_of_helms_needs_no_helm(class_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UnknownMetricError, match=f"^{class_name} is not one of HELM's metrics"):
        make(class_name)


def test_a_name_imports_nothing_but_helms_metrics(installed_helm: Path) -> None:
    (installed_helm / "users_own.py").write_text("raise AssertionError('imported')\n")
    (installed_helm / "helm" / "elsewhere.py").write_text("raise AssertionError('imported')\n")
    for name in ("users_own.OwnMetric", "helm.elsewhere.OwnMetric"):
        with pytest.raises(UnknownMetricError, match="import your own metric's module"):
            make(name)


def test_a_metric_of_the_users_own_is_taken_once_it_is_imported(installed_helm: Path) -> None:
    (installed_helm / "users_own.py").write_text(
        "from helm.benchmark.metrics.metric import Metric\nclass OwnMetric(Metric): pass\n"
    )
    import_plugins(["users_own"])
    assert isinstance(make("users_own.OwnMetric"), InstalledHelmMetric)
    with pytest.raises(SpecificationError, match=r"the plugin 'users_own\.nonesuch' cannot be loaded: ModuleNotFound"):
        import_plugins(["users_own.nonesuch"])


@pytest.mark.parametrize(
    ("class_name", "args", "reason"),
    [
        ("code_metrics.APPSMetric", {}, "runs code that the model wrote"),
        ("aliases.APPSMetric", {}, "runs code that the model wrote"),
        ("unitxt_metrics.UnitxtMetric", {"recipe": "card=a"}, "runs code from the recipe in its arguments"),
        ("comet_metric.CometMetric", {"task": "a", "model_name": "some/body"}, "loads the model 'some/body'"),
        (
            "output_processing_metric.OutputProcessingMetric",
            {"processor": "os.system", "metric_specs": []},
            "passes the model's answers to os.system",
        ),
        (
            "output_processing_metric.OutputProcessingMetric",
            {"processor": STRIP, "metric_specs": [{"class_name": f"{METRICS}aliases.APPSMetric", "args": {}}]},
            "runs code that the model wrote",
        ),
        (
            "output_processing_metric.OutputProcessingMetric",
            {
                "processor": STRIP,
                "metric_specs": [
                    {"class_name": f"{METRICS}basic_metrics.BasicGenerationMetric", "args": {"names": ["pass"]}}
                ],
            },
            "runs code that the model wrote",
        ),
    ],
)
def test_code_that_comes_along_runs_only_if_allowed(class_name: str, args: dict[str, Any], reason: str) -> None:
    metric = make(METRICS + class_name, **args)
    with pytest.raises(UnsupportedTaskError, match=f"{reason}.*without a sandbox"):
        metric.check_permission(None)
    if "unitxt" in class_name:
        assert sys.modules[f"{METRICS}unitxt_metrics"].UnitxtMetric.made == 0
    metric.check_permission(UnsafeCode())


@pytest.mark.parametrize("processor", [STRIP, "os.system"])
def test_metrics_inside_of_others_are_metrics_too(processor: str) -> None:
    inside = [{"class_name": "os.system", "args": {"command": "false"}}]
    with pytest.raises(UnknownMetricError, match=r"os\.system"):
        make(f"{METRICS}output_processing_metric.OutputProcessingMetric", processor=processor, metric_specs=inside)


@pytest.mark.parametrize(
    ("class_name", "args"),
    [
        ("toxicity_metrics.ToxicityMetric", {}),
        ("comet_metric.CometMetric", {"task": "a"}),
        ("output_processing_metric.OutputProcessingMetric", {"processor": STRIP, "metric_specs": []}),
    ],
)
def test_other_metrics_need_no_permission(class_name: str, args: dict[str, Any]) -> None:
    make(METRICS + class_name, **args).check_permission(None)


def test_what_keeps_a_metric_from_being_made_is_named() -> None:
    with pytest.raises(SpecificationError, match="ToxicityMetric cannot be created: TypeError"):
        make(f"{METRICS}toxicity_metrics.ToxicityMetric", mode="a")
    with pytest.raises(SpecificationError, match="cannot be created: OSError: no network"):
        make(f"{METRICS}toxicity_metrics.NoNetworkMetric")
    with pytest.raises(MissingDependencyError, match="a_package_that_is_not_there"):
        make(f"{METRICS}of_tomorrow.Metric")


_RESULTS = (
    "from dataclasses import make_dataclass\n"
    "import numpy\n"
    "from helm.benchmark.metrics.metric import Metric\n"
    "Result = make_dataclass('Result', ['aggregated_stats', 'per_instance_stats'])\n"
    "Stat = make_dataclass('Stat', ['name', 'count', 'sum', 'sum_squared', 'mean'])\n"
    "class UsersMetric(Metric):\n"
    "    def __init__(self, what): self.what = what\n"
    "    def evaluate(self, *_):\n"
    "        value = eval(self.what)\n"
    "        return value and Result([Stat({'name': 'score'}, 1, value, value, value)], [])\n"
)


@pytest.fixture
def users_metric(installed_helm: Path) -> str:
    (installed_helm / "users_own_results.py").write_text(_RESULTS)
    import_plugins(["users_own_results"])
    return "users_own_results.UsersMetric"


@pytest.mark.parametrize("number", ["numpy.float64(0.5)", "numpy.float32(0.5)", "0.5", "numpy.int64(3)", "3"])
def test_numbers_of_numpy_are_numbers(users_metric: str, number: str) -> None:
    (stat,) = make(users_metric, what=number).evaluate(state([]), None).aggregated_stats
    value = 3 if "3)" in number or number == "3" else 0.5
    assert stat.to_builtins()["sum"] == value
    assert type(stat.sum) is type(value)


@pytest.mark.parametrize(
    ("result", "reason"),
    [("None", "AttributeError"), ("'much'", "FileFormatError: a Stat.sum: "), ("exit(0)", "SystemExit: 0")],
)
def test_a_metric_that_gives_no_statistics_is_named(users_metric: str, result: str, reason: str) -> None:
    with pytest.raises(
        SpecificationError, match=f"^{users_metric}, which runs in the installed HELM, failed: {reason}"
    ):
        make(users_metric, what=result).evaluate(state([]), None)
