from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import msgspec
import pytest

from assay.cli.helm import helm
from assay.errors import (
    AssayError,
    DataNotFoundError,
    FileFormatError,
    MetricFailedError,
    MissingDependencyError,
    NothingMeasuredError,
    OutputError,
    SpecificationError,
    UnknownMetricError,
)
from assay.helm import (
    MetricName,
    MetricOptions,
    MetricSpec,
    RequestState,
    RunSpec,
    ScenarioSpec,
    Stat,
    evaluate,
    run_entry,
)
from assay.helm.run_directory import RUN_SPEC, SCENARIO_STATE
from assay.helm.stat_files import PER_INSTANCE_STATS, STATS
from tests.helm.states import generation, result, state

BASIC = "helm.benchmark.metrics.basic_metrics."
WITHOUT_TOKENIZER = "num_prompt_tokens and what depends on it is left out: it needs --tokenizer hf:PATH"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run without statistics: three questions, two of them answered rightly, one without a result."""
    run = state(
        [generation(0, result("yes")), generation(1, result("no")), generation(2, result("yes")), generation(3, None)]
    )
    spec = RunSpec(
        "a-run",
        ScenarioSpec("x.Scenario"),
        run.adapter_spec,
        [
            MetricSpec(f"{BASIC}BasicGenerationMetric", {"names": ["exact_match", "prefix_exact_match"]}),
            MetricSpec(f"{BASIC}InstancesPerSplitMetric"),
        ],
    )
    folder = tmp_path / "a-run"
    folder.mkdir()
    (folder / SCENARIO_STATE).write_bytes(run.to_json())
    (folder / RUN_SPEC).write_bytes(spec.to_json())
    return folder


@pytest.fixture
def tokenizer_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "a_tokenizer_of_the_users_own"
    (tmp_path / f"{name}.py").write_text(
        "class Words:\n"
        "    def encode(self, text): return text.split()\n"
        "    def decode(self, tokens): return ' '.join(tokens)\n"
        "words = Words()\n"
        "class Broken(Words):\n"
        "    def encode(self, text): raise FileNotFoundError(2, 'No such file', 'vocabulary')\n"
        "class Ending(Words):\n"
        "    def encode(self, text): raise SystemExit(0)\n"
        "class Numbers(Words):\n"
        "    def encode(self, text): return len(text)\n"
        "nothing = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def run_command(*arguments: object) -> None:
    helm.main(args=[str(argument) for argument in arguments], standalone_mode=False)


def means(folder: Path) -> dict[str, float]:
    return {stat["name"]["name"]: stat["mean"] for stat in json.loads((folder / STATS).read_bytes()) if stat["count"]}


@pytest.mark.parametrize("object_name", ["words", "Words"])
def test_evaluate_writes_statistics_beside_the_run(
    run_dir: Path, tokenizer_module: str, object_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_command("evaluate", run_dir, "--tokenizer", f"{tokenizer_module}:{object_name}", "--parallelism", 1)
    assert means(run_dir)["exact_match"] == pytest.approx(2 / 3)
    assert means(run_dir)["num_prompt_tokens"] == 2
    assert means(run_dir)["num_instances"] == 4
    assert len(json.loads((run_dir / PER_INSTANCE_STATS).read_bytes())) == 3
    shown = capsys.readouterr()
    assert "exact_match" in shown.out
    assert "num_prompt_tokens" not in shown.out
    assert "1 instances could not be scored:\n  instance id3, trial 0: a request has no result" in shown.err


def test_what_needs_a_tokenizer_is_named_and_the_rest_computed(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_command("evaluate", run_dir)
    assert (
        "num_prompt_tokens and what depends on it is left out: it needs --tokenizer hf:PATH" in capsys.readouterr().err
    )
    assert "num_prompt_tokens" not in means(run_dir)
    assert "exact_match" in means(run_dir)


def test_less_does_not_replace_more(run_dir: Path, tokenizer_module: str, tmp_path: Path) -> None:
    run_command("evaluate", run_dir, "--tokenizer", f"{tokenizer_module}:words")
    before = (run_dir / STATS).read_bytes()
    for arguments in (["--metric", "exact_match"], [], ["--first-metric-only"], ["--output-dir", run_dir]):
        with pytest.raises(OutputError, match="is left unchanged, because it would lose"):
            run_command("evaluate", run_dir, *arguments)
    assert (run_dir / STATS).read_bytes() == before
    run_command("evaluate", run_dir, "--metric", "exact_match", "--output-dir", tmp_path / "out")
    assert "prefix_exact_match" not in means(tmp_path / "out")
    assert (tmp_path / "out" / RUN_SPEC).read_bytes() == (run_dir / RUN_SPEC).read_bytes()
    assert (tmp_path / "out" / SCENARIO_STATE).read_bytes() == (run_dir / SCENARIO_STATE).read_bytes()
    run_command("evaluate", run_dir, "--metric", "exact_match", "--allow-fewer")
    assert "prefix_exact_match" not in means(run_dir)


def test_the_same_may_be_computed_again(run_dir: Path) -> None:
    run_command("evaluate", run_dir)
    before = (run_dir / STATS).read_bytes()
    run_command("evaluate", run_dir)
    assert (run_dir / STATS).read_bytes() == before


def test_a_bare_state_needs_metrics(run_dir: Path, tmp_path: Path) -> None:
    bare = tmp_path / "state.json"
    bare.write_bytes((run_dir / SCENARIO_STATE).read_bytes())
    with pytest.raises(SpecificationError, match="which metrics"):
        run_command("evaluate", bare)
    run_command("evaluate", bare, "--metric", "exact_match", "--metric", "InstancesPerSplitMetric")
    assert set(means(tmp_path)) >= {"exact_match", "num_instances"}
    run_command("evaluate", bare, "--run-spec", run_dir / RUN_SPEC, "--output-dir", tmp_path / "out")
    assert "prefix_exact_match" in means(tmp_path / "out")


def test_a_class_is_taken_with_the_runs_arguments(run_dir: Path, tmp_path: Path) -> None:
    run_command("evaluate", run_dir, "--metric", "BasicGenerationMetric", "--output-dir", tmp_path / "out")
    assert "prefix_exact_match" in means(tmp_path / "out")
    assert "num_instances" not in means(tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--metric", "exact_mach"], UnknownMetricError, "there is no metric 'exact_mach'; did you mean exact_match"),
        (["--metric", "BasicGenerationMetrics"], UnknownMetricError, "did you mean BasicGenerationMetric"),
        (["--tokenizer", "words"], SpecificationError, "neither hf:PATH nor MODULE:OBJECT"),
        (["--tokenizer", "no_such_module:words"], SpecificationError, "cannot be loaded: ModuleNotFoundError"),
        (["--run-spec", "absent.json"], FileFormatError, r"absent\.json cannot be read: No such file"),
    ],
)
def test_what_is_asked_for_wrongly_is_named(
    run_dir: Path, arguments: list[str], error: type[AssayError], message: str
) -> None:
    with pytest.raises(error, match=message) as refusal:
        run_command("evaluate", run_dir, *arguments)
    assert "\n" not in str(refusal.value)
    assert sorted(path.name for path in run_dir.iterdir()) == [RUN_SPEC, SCENARIO_STATE]


@pytest.mark.parametrize("option", ["--plugin", "--tokenizer"])
def test_a_module_that_ends_the_program_is_no_success(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    name = "a_script_without_a_main_guard"
    (tmp_path / f"{name}.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SpecificationError, match=rf"{name}.* calls sys.exit\(0\) when it is imported"):
        run_command("evaluate", run_dir, option, name if option == "--plugin" else f"{name}:words")
    assert not (run_dir / STATS).exists()


@pytest.mark.parametrize("name", ["nothing", "absent"])
def test_an_object_that_is_no_tokenizer_is_refused(run_dir: Path, tokenizer_module: str, name: str) -> None:
    with pytest.raises(SpecificationError, match=r"has no encode and decode|cannot be loaded"):
        run_command("evaluate", run_dir, "--tokenizer", f"{tokenizer_module}:{name}")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("Broken", "FileNotFoundError: .* 'vocabulary'"), ("Ending", "SystemExit: 0"), ("Numbers", "TypeError")],
)
def test_a_tokenizer_that_fails_is_named(
    run_dir: Path, tokenizer_module: str, tmp_path: Path, name: str, reason: str
) -> None:
    where = ("--tokenizer", f"{tokenizer_module}:{name}", "--output-dir", tmp_path / "out")
    with pytest.raises(SpecificationError, match=f"the tokenizer fails on the text 'Is 1 a number.': {reason}"):
        run_command("evaluate", run_dir, *where)
    assert not (tmp_path / "out").exists()


def test_a_metric_of_helms_own_says_what_to_install(run_dir: Path) -> None:
    name = "helm.benchmark.metrics.toxicity_metrics.ToxicityMetric"
    if importlib.util.find_spec("helm") is not None:
        pytest.skip("HELM is installed")
    with pytest.raises(MissingDependencyError, match="pip install crfm-helm"):
        run_command("evaluate", run_dir, "--metric", name)


@pytest.mark.parametrize(
    ("requests", "reason"),
    [([generation(0, None), generation(1, result())], "not one request has a result"), ([], "the run has no requests")],
)
@pytest.mark.parametrize("metric", ["exact_match", "InstancesPerSplitMetric", "TokensMetric", "BBQMetric"])
def test_a_run_without_results_measures_nothing(
    tmp_path: Path, requests: list[RequestState], reason: str, metric: str
) -> None:
    path = tmp_path / SCENARIO_STATE
    path.write_bytes(state(requests).to_json())
    with pytest.raises(NothingMeasuredError, match=reason):
        run_command("evaluate", path, "--metric", metric)


def test_answers_that_cannot_be_scored_measure_nothing(tmp_path: Path) -> None:
    path = tmp_path / SCENARIO_STATE
    path.write_bytes(state([generation(0, result("yes"))]).to_json().replace(b'"correct"', b'"wrong"'))
    metrics = ("--metric", "exact_match", "--metric", "InstancesPerSplitMetric")
    with pytest.raises(NothingMeasuredError, match="not one request could be scored"):
        run_command("evaluate", path, *metrics)


def test_a_missing_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"has no scenario_state\.json"):
        run_command("evaluate", tmp_path)
    with pytest.raises(FileFormatError, match="there is no file"):
        run_command("evaluate", tmp_path / "absent")
    with pytest.raises(FileFormatError, match=r"stats\.json cannot be read: No such file"):
        run_command("show", tmp_path)


def test_show_gives_scores_or_everything(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_command("evaluate", run_dir)
    capsys.readouterr()
    run_command("show", run_dir)
    scores = capsys.readouterr().out
    assert "exact_match" in scores
    assert "0.6667" in scores
    assert "num_references" not in scores
    assert "robustness" not in scores
    run_command("show", run_dir, "--all")
    everything = capsys.readouterr().out
    assert "num_references" in everything
    assert "robustness (worst)" in everything
    run_command("show", run_dir, "--json")
    assert json.loads(capsys.readouterr().out) == json.loads((run_dir / STATS).read_bytes())


@pytest.mark.parametrize("stats", [[], [Stat(MetricName("exact_match"))]])
def test_nothing_to_show_is_no_success(tmp_path: Path, stats: list[Stat], capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / STATS).write_text(json.dumps([stat.to_builtins() for stat in stats]))
    with pytest.raises(NothingMeasuredError, match=r"stats\.json holds no statistic that has a value"):
        run_command("show", tmp_path, "--json")
    assert json.loads(capsys.readouterr().out) == [stat.to_builtins() for stat in stats]


def test_show_lets_no_control_codes_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stat = {"name": {"name": "\x1b[31mred[bold]"}, "count": 1, "sum": 1, "sum_squared": 1, "mean": 1.0}
    (tmp_path / STATS).write_text(json.dumps([stat]))
    run_command("show", tmp_path)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "red[bold]" in shown


@pytest.mark.parametrize("text", ["{}", "[3]", "[", '[{"name": {"name": "a"}, "count": "b"}]'])
def test_damaged_statistics_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / STATS).write_text(text)
    with pytest.raises(FileFormatError, match=r"stats\.json"):
        run_command("show", tmp_path)


TRANSLATION = MetricSpec("helm.benchmark.metrics.machine_translation_metrics.MachineTranslationMetric")


def test_a_metric_that_fails_takes_no_other_with_it(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_dir / SCENARIO_STATE).write_bytes(
        state([generation(0, result("yes")), generation(1, result("yes"), golds=("yes", "no"))]).to_json()
    )
    spec = RunSpec.from_json((run_dir / RUN_SPEC).read_bytes())
    run_command("evaluate", run_dir, "--output-dir", tmp_path / "alone")
    specs = [TRANSLATION, *spec.metric_specs]
    (run_dir / RUN_SPEC).write_bytes(msgspec.structs.replace(spec, metric_specs=specs).to_json())
    with pytest.raises(MetricFailedError, match=r"but MachineTranslationMetric fails: .* id1 has 2 references"):
        run_command("evaluate", run_dir)
    assert "exact_match" in capsys.readouterr().out
    for name in (STATS, PER_INSTANCE_STATS):
        assert (run_dir / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


def test_a_metric_that_fails_takes_no_statistics_away(run_dir: Path) -> None:
    spec = RunSpec.from_json((run_dir / RUN_SPEC).read_bytes())
    spec = msgspec.structs.replace(spec, metric_specs=[TRANSLATION])
    good, bad = state([generation(0, result("yes"))]), state([generation(0, result("yes"), golds=("yes", "no"))])
    run_entry(spec, good, run_dir)
    before = (run_dir / STATS).read_bytes()
    with pytest.raises(OutputError, match=r"would lose bleu.* \(MachineTranslationMetric fails: .* 2 references"):
        run_entry(spec, bad, run_dir)
    assert (run_dir / STATS).read_bytes() == before
    with pytest.raises(MetricFailedError, match=r"^there are no statistics: MachineTranslationMetric fails"):
        run_entry(spec, bad, run_dir, allow_fewer=True)
    assert (run_dir / STATS).read_bytes() == b"[]"


def test_what_is_left_out_is_said_before_anything_is_computed(run_dir: Path) -> None:
    said: list[str | int] = []
    evaluate(run_dir, note=said.append, progress=said.append)
    assert said == [f"BasicGenerationMetric: {WITHOUT_TOKENIZER}", 4]


def test_numbers_of_instances_alone_are_no_result(run_dir: Path) -> None:
    run = state([generation(0, result("yes"))], method="language_modeling")
    (run_dir / SCENARIO_STATE).write_bytes(run.to_json())
    with pytest.raises(
        NothingMeasuredError, match=r"no metric of the answers.*BasicGenerationMetric is left out: it does not take"
    ):
        run_command("evaluate", run_dir)
    assert not (run_dir / STATS).exists()
    run_command("evaluate", run_dir, "--metric", "InstancesPerSplitMetric")
    assert means(run_dir) == {"num_instances": 1}


def test_statistics_without_a_score_are_pointed_to(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_command("evaluate", run_dir, "--metric", "InstancesPerSplitMetric")
    assert "no score among the statistics; assay helm show --all" in capsys.readouterr().err
    run_command("show", run_dir, "--all")
    shown = capsys.readouterr()
    assert "num_instances" in shown.out
    assert not shown.err


def test_one_name_may_be_given_for_several(run_dir: Path, tmp_path: Path) -> None:
    evaluate(run_dir, "prefix_exact_match", output_dir=tmp_path / "out", plugins="json")
    assert "prefix_exact_match" in means(tmp_path / "out")
    assert "exact_match" not in means(tmp_path / "out")
    unsafe = MetricOptions(confirm_run_unsafe_code=True, code_tests=str(tmp_path / "absent.jsonl"))
    with pytest.raises(DataNotFoundError, match=r"there is no file .*absent\.jsonl"):
        evaluate(run_dir, "pass", unsafe, output_dir=tmp_path / "out")
