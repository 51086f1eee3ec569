"""Policies are read strictly, and share their error rate among their checks."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from assay.errors import FileFormatError, SpecificationError
from assay.gate.policy import Overrides, load_policy, override, specifications
from assay.specification import validate
from assay.types import TLS, Budget, EarlyStopping, TaskOptions

MODEL = '[models.main]\nbase_url = "http://localhost:8000"\nmodel = "m"\n'
CHECK = '[[checks]]\ntask = "gsm8k"\nmetric = "exact_match"\nmin = 0.5\n'


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "gate.toml"
    file.write_text(text)
    return file


def test_a_policy_becomes_one_run_a_model(tmp_path: Path) -> None:
    policy = load_policy(
        write(
            tmp_path,
            'alpha = 0.02\n[budget]\ndocuments = 500\n[options]\nlimit = 100\ndata_dir = "data"\n'
            + MODEL
            + '[models.other]\nbase_url = "http://localhost:8001"\nmodel = "n"\nconcurrency = 7\n'
            + CHECK
            + '[[checks]]\ntask = "ifeval"\nmetric = "acc"\nbaseline = "b.json"\nmargin = 0.03\nmodel = "other"\n',
        )
    )
    runs = specifications(policy)
    assert list(runs) == ["main", "other"]
    assert runs["main"].tasks == ("gsm8k",)
    assert runs["other"].tasks == ("gsm8k", "ifeval")
    assert runs["other"].model.concurrency == 7
    assert runs["other"].early_stopping == EarlyStopping(budget=Budget(documents=500))
    # three checks in all: gsm8k for two models, ifeval for one
    alphas = [check.alpha for run in runs.values() for check in validate(run).checks]
    assert alphas == [pytest.approx(0.02 / 3)] * 3
    assert runs["other"].checks[1].baseline == str(tmp_path / "b.json")
    assert runs["main"].options.data_dir == str(tmp_path / "data")
    assert runs["main"].output_dir == str(tmp_path / "results")


@pytest.mark.parametrize(
    ("second", "is_refused"),
    [
        ('base_url = "http://localhost:8000/v1"\nmodel = "m"\nconcurrency = 2\n', True),
        ('base_url = "http://localhost:8001"\nreplicas = ["http://localhost:8000"]\nmodel = "m"\n', True),
        ('base_url = "http://localhost:8001"\nmodel = "m"\n', False),
        ('base_url = "http://localhost:8000"\nmodel = "n"\n', False),
        ('base_url = "http://localhost:8000"\nmodel = "m"\nseed = 7\n', False),
    ],
    ids=["the same", "among replicas", "another server", "another model", "another seed"],
)
def test_models_that_would_share_answers_are_refused(tmp_path: Path, second: str, is_refused: bool) -> None:
    """The second would be judged by the first one's answers and never be asked."""
    policy = load_policy(write(tmp_path, MODEL + "[models.other]\n" + second + CHECK))
    with pytest.raises(SpecificationError, match=r"models.main\] and \[models.other") if is_refused else nullcontext():
        specifications(policy)


def test_paths_are_those_of_the_policys_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ci").mkdir()
    file = write(tmp_path / "ci", MODEL + CHECK)
    monkeypatch.chdir(tmp_path)
    assert load_policy(file.relative_to(tmp_path)).output_dir == "ci/results"
    reached = MODEL + 'api_key_file = "key"\ntls = {ca_file = "ca.pem"}\n' + CHECK
    model = load_policy(write(tmp_path / "ci", reached).relative_to(tmp_path)).models["main"]
    assert (model.api_key_file, model.tls) == ("ci/key", TLS(ca_file="ci/ca.pem"))


def test_replicas_of_a_model(tmp_path: Path) -> None:
    policy = load_policy(write(tmp_path, MODEL + 'replicas = ["http://localhost:8001"]\n' + CHECK))
    assert policy.models["main"].base_urls == ("http://localhost:8000", "http://localhost:8001")
    (tmp_path / "list").write_text("http://b\nhttp://c\n")
    given = override(policy, Overrides(base_urls=("http://a", f"main=@{tmp_path / 'list'}")))
    assert given.models["main"].base_urls == ("http://a", "http://b", "http://c")
    assert override(policy, Overrides(base_urls=("http://a",))).models["main"].base_urls == ("http://a",)


def test_how_alpha_is_shared(tmp_path: Path) -> None:
    two = MODEL + CHECK + CHECK.replace("gsm8k", "bbh")
    for head, alphas, holm in (
        ("", [0.005, 0.005], False),
        ('correction = "holm"\n', [0.005, 0.005], True),
        ('correction = "none"\n', [0.01, 0.01], False),
    ):
        run = specifications(load_policy(write(tmp_path, head + two)))["main"]
        assert [check.alpha for check in validate(run).checks] == alphas
        assert run.early_stopping == EarlyStopping(holm=holm)
    own = specifications(load_policy(write(tmp_path, two + "alpha = 0.001\n")))["main"]
    assert [check.alpha for check in validate(own).checks] == [0.01, 0.001]
    full = specifications(load_policy(write(tmp_path, "stop_early = false\n" + two)))["main"]
    assert full.early_stopping is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alhpa = 1\n" + MODEL + CHECK, "no key 'alhpa'; there is 'alpha'; did you mean that"),
        (MODEL + "modle = 1\n" + CHECK, r"models\.main: there is no key 'modle'; there is 'model'"),
        (MODEL + CHECK + "minimum = 1\n", "checks 1: there is no key 'minimum'"),
        ("[budget]\ndocs = 1\n" + MODEL + CHECK, "budget: there is no key 'docs'"),
        (MODEL + CHECK.replace("0.5", '"high"'), r"checks 1\.min is 'high'; it must be a number"),
        (MODEL + CHECK.replace("0.5", '"50%"'), r"checks 1\.min is '50%'; it must be a number.*: write 0\.5 for 50 %"),
        (
            MODEL + 'concurrency = "lots"\n' + CHECK,
            r"models\.main\.concurrency is 'lots'; .*number, or 'auto'",
        ),
        (
            MODEL + CHECK.replace("[[checks]]", "[checks]"),
            r"checks is a table; .*of tables: write \[\[checks\]\]",
        ),
        ('alpha = "1%"\n' + MODEL + CHECK, "alpha is '1%'; .*: write 0.01 for 1 %"),
        ('stop_early = "yes"\n' + MODEL + CHECK, "stop_early is 'yes'; it must be true or false"),
        ('tasks = "gsm8k"\n' + MODEL + CHECK, "tasks is 'gsm8k'; it must be a list"),
        (MODEL.replace("[models.main]", "[models]") + CHECK, "models.base_url is .*; it must be a table"),
        (MODEL.replace("[models.main]", "[[models]]") + CHECK, "models is a list; it must be a table"),
        (MODEL + '[[checks]]\nmetric = "acc"\n', r"checks\[0\]: Object missing required field `task`"),
        (MODEL, "has no checks"),
        ("checks = []\n" + MODEL, "no checks"),
        ("[models]\n" + CHECK, "names no model"),
        (MODEL + CHECK + "max = 0.9\n", "exactly one of min, max and baseline"),
        (MODEL + CHECK + 'model = "mian"\n', "'main'; did you mean"),
        ("alpha = 0\n" + MODEL + CHECK, "alpha is 0"),
        (
            MODEL + '[models.b]\nbase_url = "http://b"\nmodel = "m"\n' + CHECK + 'model = "main"\n',
            "no check is for model 'b', so nothing would judge it: add one, or leave out",
        ),
        ("stop_early = false\n[budget]\ntokens = 5\n" + MODEL + CHECK, "a budget needs stop_early"),
        ("[budget]\nminutes = -1\n" + MODEL + CHECK, "budget.minutes is -1"),
        ('correction = "holm"\n' + MODEL + CHECK + "alpha = 0.1\n", "Holm's method shares one alpha"),
        ('correction = "sidak"\n' + MODEL + CHECK, "correction is 'sidak'; it must be 'bonferroni', "),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        load_policy(write(tmp_path, text))


def test_what_is_no_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="there is no policy file"):
        load_policy(tmp_path / "none.toml")
    with pytest.raises(FileFormatError, match="as TOML"):
        load_policy(write(tmp_path, "alpha = "))


def test_options_are_those_of_assay_run(tmp_path: Path) -> None:
    options = (
        "log_samples = false\n[options]\nsamples = { gsm8k = [0, 5, 7] }\nrandom_seed = 1\nnumpy_seed = 2\n"
        "torch_seed = 3\nfewshot_seed = 4\napply_chat_template = true\nfewshot_as_multiturn = false\n"
        'system_instruction = "Be brief."\n'
    )
    model = MODEL + 'endpoint = "completions"\ntokenizer = "t"\nseed = 5\ndistinct_repeat_seeds = true\n'
    run = specifications(load_policy(write(tmp_path, options + model + CHECK)))["main"]
    assert not run.log_samples
    assert run.options == TaskOptions(
        samples={"gsm8k": (0, 5, 7)},
        random_seed=1,
        numpy_seed=2,
        torch_seed=3,
        fewshot_seed=4,
        apply_chat_template=True,
        fewshot_as_multiturn=False,
        system_instruction="Be brief.",
    )
    assert (run.model.seed, run.model.distinct_repeat_seeds) == (5, True)
    assert (validate(run).options, validate(run).model) == (run.options, run.model)


def test_a_policy_is_read_with_other_values_in_place_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "gate.toml"
    file.write_text(
        '[models.main]\nbase_url = "http://a"\nmodel = "m"\n[[checks]]\ntask = "t"\nmetric = "acc,none"\nmin = 0.5\n'
    )
    policy = load_policy(file, Overrides(base_urls=("http://b", "http://c"), output_dir="elsewhere"))
    assert policy.models["main"].base_urls == ("http://b", "http://c")
    assert policy.output_dir == "elsewhere"
    assert load_policy(file).models["main"].base_urls == ("http://a",)


@pytest.mark.parametrize(
    "local", ['base_url = "hf:/models/small"', 'base_url = "http://a"\nlocal = {dtype = "float32"}']
)
def test_a_model_in_this_process_is_refused(local: str, tmp_path: Path) -> None:
    text = f'[models.main]\n{local}\nmodel = "m"\n{CHECK}'
    with pytest.raises(SpecificationError, match=r"\[models.main\] is a model in this process; a gate judges servers"):
        load_policy(write(tmp_path, text))
