"""Loaded tasks against those that lm-eval's own ``simple_evaluate`` would evaluate, and faults in tasks."""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assay.errors import (
    DataNotFoundError,
    MissingDependencyError,
    SpecificationError,
    TaskConfigError,
    UnknownTaskError,
    UnsupportedTaskError,
)
from assay.tasks import nltk_data
from assay.tasks.index import lm_eval_tasks_folder
from assay.tasks.library import LoadedTasks, load_tasks
from assay.tasks.patches import datasets_library
from assay.types import TaskOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

METADATA = {"model": "m", "base_url": "http://localhost/v1", "max_length": 4096}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "library-cache"))
    monkeypatch.setattr(datasets_library, "_accepts_connection", lambda endpoint: False)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


SUM_TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
doc_to_text: "{{{{q}}}} ="
doc_to_target: "{{{{a}}}}"
metric_list: [{{metric: exact_match}}]
"""


def write_task(folder: Path, name: str, more: str = "") -> Path:
    rows = write_rows(folder / "rows.jsonl", [{"q": f"{n}+{n}", "a": str(2 * n)} for n in range(20)])
    return write(folder / f"{name}.yaml", SUM_TASK.format(name=name, rows=rows) + more)


# -- the same as simple_evaluate's ------------------------------------------------------------------------------------


class _CaughtError(Exception):
    """Ends ``simple_evaluate`` where it would start to ask."""


def lm_evals(
    names: Sequence[str],
    options: TaskOptions,
    families: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> dict[str, Any]:
    """What the real ``simple_evaluate`` hands to its ``evaluate``; it indexes only `families`, to save nine seconds."""
    import datasets
    import lm_eval.evaluator
    from lm_eval.models.dummy import DummyLM
    from lm_eval.tasks import TaskManager

    caught: dict[str, Any] = {}

    def catch(**arguments: Any) -> None:
        caught.update(arguments["task_dict"])
        raise _CaughtError

    load_dataset = datasets.load_dataset

    def from_folder(path: str, name: str | None = None, **more: Any) -> Any:
        folder = Path(options.data_dir or "") / path
        return load_dataset(str(folder) if folder.is_dir() else path, name, cache_dir=str(tmp_path / "hf"), **more)

    monkeypatch.setattr(datasets, "load_dataset", from_folder)
    monkeypatch.setattr(lm_eval.evaluator, "evaluate", catch)
    paths: list[str | Path] = [lm_eval_tasks_folder() / family for family in families]
    manager = TaskManager(
        include_defaults=False,
        include_path=paths + ([options.include_path] if options.include_path else []),
        metadata=METADATA,
    )
    with pytest.raises(_CaughtError):
        lm_eval.evaluator.simple_evaluate(
            model=DummyLM(),
            tasks=list(names),
            num_fewshot=options.num_fewshot,
            gen_kwargs=dict(options.gen_kwargs) or None,
            task_manager=manager,
            random_seed=options.random_seed,
            numpy_random_seed=options.numpy_seed,
            fewshot_random_seed=options.fewshot_seed,
        )
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return caught


def prompts(task: Any, count: int = 3) -> list[Any]:
    """The first prompts, as text and as a conversation."""
    made = []
    for is_chat in (False, True):
        for _, doc in zip(range(count), task.eval_docs, strict=False):
            made.append(
                task.fewshot_context(
                    doc,
                    num_fewshot=task.get_config("num_fewshot"),
                    apply_chat_template=is_chat,
                    fewshot_as_multiturn=is_chat,
                    chat_template=(lambda messages, **_: json.dumps(messages)) if is_chat else None,
                    gen_prefix=task.doc_to_prefix(doc),
                )
            )
    return made


def comparable_config(task: Any) -> str:
    """A task's configuration as results show it, without the addresses of functions in memory."""
    return re.sub(r"0x[0-9a-f]+", "0x", repr(task.dump_config()))


def group_shape(group: Any) -> Any:
    return (
        group.name,
        group.child_names,
        [task.task_name for task in group.get_all_tasks()],
        repr(group._config),
        group.metadata,
        group.version,
    )


def assert_same(loaded: LoadedTasks, expected: dict[str, Any]) -> None:
    assert list(loaded.tasks) == list(expected["tasks"])
    for name, task in loaded.tasks.items():
        theirs = expected["tasks"][name]
        assert comparable_config(task) == comparable_config(theirs)
        assert task.VERSION == theirs.VERSION
        assert type(task) is type(theirs)
        assert len(task.eval_docs) == len(theirs.eval_docs)
        assert prompts(task) == prompts(theirs)
    assert list(loaded.groups) == list(expected["groups"])
    assert [group_shape(g) for g in loaded.groups.values()] == [group_shape(g) for g in expected["groups"].values()]


@pytest.mark.data
@pytest.mark.parametrize(
    ("names", "families", "options"),
    [
        (["gsm8k"], ["gsm8k"], {}),
        (["gsm8k_cot"], ["gsm8k"], {"num_fewshot": 3, "gen_kwargs": {"temperature": 0.5, "max_gen_toks": 99}}),
        (["gsm8k_cot", "gsm8k"], ["gsm8k"], {"fewshot_seed": 7}),
        (["bbh_cot_fewshot"], ["bbh"], {}),
        (["bbh_zeroshot_snarks", "bbh_cot_zeroshot_snarks"], ["bbh"], {"num_fewshot": 2}),
        (["leaderboard_ifeval"], ["leaderboard"], {}),
        (["mmlu_pro"], ["mmlu_pro"], {}),
        (["mmlu_pro_law"], ["mmlu_pro"], {"num_fewshot": 1}),
        (["winogrande", "ai2_arc"], ["winogrande", "arc"], {"num_fewshot": 2}),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else "",
)
def test_tasks_are_simple_evaluates(
    names: list[str],
    families: list[str],
    options: dict[str, Any],
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    wanted = TaskOptions(data_dir=str(data_dir), **options)
    assert_same(load_tasks(names, wanted, METADATA), lm_evals(names, wanted, families, monkeypatch, tmp_path))


def test_the_users_tasks_are_simple_evaluates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    user = tmp_path / "user"
    write_task(user / "own", "own_a", "tag: owns\nnum_fewshot: 2\nfewshot_split: test\n")
    write_task(
        user / "own", "own_b", "tag: owns\nprocess_docs: !function code.halve\ngeneration_kwargs: {until: [x]}\n"
    )
    write(
        user / "own" / "code.py",
        "def halve(dataset):\n    return dataset.filter(lambda row, n: n % 2, with_indices=True)\n",
    )
    write(user / "derived.yaml", "include: own/own_b.yaml\ntask: derived\nnum_fewshot: 0\nmetadata: {version: 3}\n")
    write(
        user / "group.yaml",
        "group: own_group\ntask:\n  - owns\n  - group: inner\n    task: [derived]\n"
        "aggregate_metric_list: [{metric: exact_match, weight_by_size: true}]\nmetadata: {version: 2}\n",
    )
    for names in (["own_group"], ["owns", "derived"], [str(user / "derived.yaml")]):
        options = TaskOptions(include_path=str(user), num_fewshot=1)
        assert_same(load_tasks(names, options, METADATA), lm_evals(names, options, [], monkeypatch, tmp_path))


# -- names ------------------------------------------------------------------------------------------------------------


def test_patterns_paths_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = tmp_path / "user"
    for name in ("own_b", "own_a", "other"):
        write_task(user, name)
    write(user / "template.yaml", "dataset_path: json\n")
    options = TaskOptions(include_path=str(user))
    monkeypatch.chdir(tmp_path)

    def names(*asked: str, options: TaskOptions = options) -> list[str]:
        return list(load_tasks(asked, options, {}).tasks)

    assert names("own_*") == ["own_a", "own_b"]
    assert names("own_b", "own_?") == ["own_b", "own_a"]
    assert names("user/own_b.yaml", options=TaskOptions()) == ["own_b"]
    assert names("user/o*.yaml", options=TaskOptions()) == ["other", "own_a", "own_b"]
    (user / "template.yaml").unlink()
    assert names("user", options=TaskOptions()) == ["other", "own_a", "own_b"]


def test_names_that_stand_for_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnknownTaskError, match=r"'gsm8kk'; near: gsm8k, "):
        load_tasks(["gsm8kk"], TaskOptions(), {})
    with pytest.raises(UnknownTaskError, match=r"^no task, group or tag matches 'gsm9\*'; "):
        load_tasks(["gsm9*"], TaskOptions(), {})
    with pytest.raises(UnknownTaskError, match=r"nowhere\.yaml"):
        load_tasks([str(tmp_path / "nowhere.yaml")], TaskOptions(), {})


@pytest.mark.parametrize("members", ["own", "[]"], ids=["a name in place of a list", "an empty list"])
def test_a_group_without_tasks_is_refused(tmp_path: Path, members: str) -> None:
    write_task(tmp_path, "own")
    write(tmp_path / "group.yaml", f"group: own_group\ntask: {members}\n")
    with pytest.raises(TaskConfigError, match="there are no tasks in own_group"):
        load_tasks(["own_group"], TaskOptions(include_path=str(tmp_path)), {})


def test_a_task_asked_for_twice(tmp_path: Path) -> None:
    write_task(tmp_path, "own")
    write(tmp_path / "group.yaml", "group: own_group\ntask: [own]\n")
    options = TaskOptions(include_path=str(tmp_path))
    assert list(load_tasks(["own", "own"], options, {}).tasks) == ["own"]
    alone = r"'own' is a member of the group 'own_group' and asked for twice: .*tasks = \[\"own_group\"\]"
    for names in (["own_group", "own"], ["own", "own_group"]):
        with pytest.raises(SpecificationError, match=alone):
            load_tasks(names, options, {})
    write(tmp_path / "over.yaml", "group: over_group\ntask: [own_group]\n")
    with pytest.raises(SpecificationError, match="'own_group' is a member of the group 'over_group'"):
        load_tasks(["over_group", "own_group"], options, {})
    write(tmp_path / "rival.yaml", "group: rival\ntask: [own]\n")
    with pytest.raises(SpecificationError, match="Duplicate task 'own'"):
        load_tasks(["own_group", "rival"], options, {})


# -- documents --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["random.random()", "RNG.random()"])
def test_random_preparation_happens_once_and_is_the_same_in_every_run(tmp_path: Path, source: str) -> None:
    write(
        tmp_path / "code.py",
        "import random\nRNG = random.Random(42)\n"
        f"def draw(dataset):\n    return dataset.map(lambda row: {{'a': str({source})}})\n",
    )
    more = "process_docs: !function code.draw\nfewshot_split: test\n"
    write_task(tmp_path, "own_a", more)
    write_task(tmp_path, "own_b", more)
    options = TaskOptions(include_path=str(tmp_path))
    runs = []
    for _ in range(2):
        sys.modules.pop(str(tmp_path / "code"), None)
        loaded = load_tasks(["own_a", "own_b"], options, {})
        own: list[Any] = list(loaded.tasks.values())
        for task in own:
            assert task.eval_docs["a"][:] == task.eval_docs["a"][:]
            assert task.fewshot_docs()["a"][:] == task.eval_docs["a"][:]
        runs.append([task.eval_docs["a"][:] for task in own])
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]


def test_data_files_are_reported(tmp_path: Path) -> None:
    write_task(tmp_path, "own")
    loaded = load_tasks(["own"], TaskOptions(include_path=str(tmp_path)), {})
    assert [[file.path for file in files] for files in loaded.data_files.values()] == [[str(tmp_path / "rows.jsonl")]]


def test_seeds_are_set(tmp_path: Path) -> None:
    import numpy as np

    write(
        tmp_path / "code.py",
        "import random\nimport numpy\n"
        "def draw(dataset):\n    return dataset.map(lambda row: {'a': f'{random.random()} {numpy.random.random()}'})\n",
    )
    write_task(tmp_path, "own", "process_docs: !function code.draw\n")
    for seeds in ((5, 6), (0, 1234)):
        options = TaskOptions(include_path=str(tmp_path), random_seed=seeds[0], numpy_seed=seeds[1])
        drawn = load_tasks(["own"], options, {}).tasks["own"].eval_docs[0]["a"]
        assert drawn == f"{random.Random(seeds[0]).random()} {np.random.RandomState(seeds[1]).random_sample()}"


def test_the_users_gen_kwargs_stay_as_they_are(tmp_path: Path) -> None:
    write_task(tmp_path, "own")
    gen_kwargs = {"until": ["stop"]}
    options = TaskOptions(include_path=str(tmp_path), gen_kwargs=gen_kwargs)
    load_tasks(["own"], options, {}).tasks["own"].config.generation_kwargs["until"].append("changed")
    assert gen_kwargs == {"until": ["stop"]}


# -- faults -----------------------------------------------------------------------------------------------------------


def refused(kind: type[Exception], names: Sequence[str], options: TaskOptions) -> str:
    with pytest.raises(kind) as caught:
        load_tasks(names, options, {})
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("import no_such_package", MissingDependencyError, r"needs the Python module 'no_such_package'"),
        ("import no_such_package.inner", MissingDependencyError, r"not installed: pip install no_such_package$"),
        ("import antlr4", MissingDependencyError, r"not installed: pip install antlr4-python3-runtime==4\.11$"),
        ("import langdetect_", MissingDependencyError, r"needs the Python module 'langdetect_'"),
        (
            "raise ModuleNotFoundError('Please install\\n rouge')",
            MissingDependencyError,
            r"needs a package, which is not installed \(Please install rouge\)$",
        ),
        (
            "try: import no_such_package\nexcept Exception as e: raise ModuleNotFoundError('try extra X') from e",
            MissingDependencyError,
            r"needs the Python module 'no_such_package', which is not installed \(try extra X\)$",
        ),
        (
            "try: import no_such_package\nexcept ImportError: raise ImportError('pip install X')",
            MissingDependencyError,
            r"needs the Python module 'no_such_package', which is not installed \(pip install X\)$",
        ),
        (
            "import yaml.no_such_part",
            MissingDependencyError,
            r"needs the Python module 'yaml.no_such_part', which the installed PyYAML [\d.]+ does not have: the task",
        ),
        (
            "raise KeyError('Correct Answer')",
            TaskConfigError,
            r"cannot be loaded: there is no 'Correct Answer' \(KeyError, code.py line 1\)$",
        ),
        (
            "raise KeyError('no such thing\\nthere are others')",
            TaskConfigError,
            r"cannot be loaded: no such thing there are others \(KeyError, code.py line 1\)$",
        ),
        (
            "raise Exception('Please install unitxt')",
            MissingDependencyError,
            r"loaded: Please install unitxt \(Exception, code.py line 1\)$",
        ),
        (
            "raise SystemExit('swipl is not installed')",
            MissingDependencyError,
            r"loaded: swipl is not installed \(SystemExit",
        ),
        (
            "from os import no_such_name",
            TaskConfigError,
            r"cannot be loaded: cannot import name .*\(ImportError, .*line 1\)",
        ),
        ("def other(d): return d", TaskConfigError, r"cannot be loaded: .*no function 'prepare' .*\(AttributeError"),
        ("def prepare(:", TaskConfigError, r"cannot be loaded: .* \(SyntaxError"),
        (
            "def prepare(d): return 1 / 0",
            TaskConfigError,
            r"cannot be loaded: division by zero \(ZeroDivisionError, .*\.py line 1\)",
        ),
        ("raise SystemExit('no GPU')", TaskConfigError, r"cannot be loaded: no GPU \(SystemExit, .*\.py line 1\)"),
    ],
)
def test_a_tasks_broken_python(tmp_path: Path, code: str, kind: type[Exception], message: str) -> None:
    write(tmp_path / "code.py", code + "\n")
    path = write_task(tmp_path, "own", "process_docs: !function code.prepare\n")
    write(tmp_path / "group.yaml", "group: own_group\ntask: [own]\n")
    for name in ("own", "own_group"):
        told = refused(kind, [name], TaskOptions(include_path=str(tmp_path)))
        assert told.startswith(f"task 'own' ({path}) ")
        assert told.count("task 'own'") == 1
        assert re.search(message, told)


def test_packages_of_ifeval_are_told_with_their_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langdetect", None)
    write(tmp_path / "code.py", "import langdetect\n")
    write_task(tmp_path, "own", "process_docs: !function code.prepare\n")
    told = refused(MissingDependencyError, ["own"], TaskOptions(include_path=str(tmp_path)))
    assert told.endswith('needs the package langdetect: pip install "assay[ifeval]"')


def test_a_tasks_broken_configuration(tmp_path: Path) -> None:
    options = TaskOptions(include_path=str(tmp_path))
    write_task(tmp_path, "own", "no_such_key: 1\n")
    assert "unexpected keyword argument 'no_such_key'" in refused(TaskConfigError, ["own"], options)
    write_task(tmp_path, "own", "output_type: no_such_type\n")
    assert "invalid output_type 'no_such_type'" in refused(TaskConfigError, ["own"], options)
    write(tmp_path / "group.yaml", "group: own_group\ntask: [no_such_task]\n")
    write_task(tmp_path, "own")
    assert refused(TaskConfigError, ["own_group"], options) == (
        "group 'own_group' names 'no_such_task', which is no task, group or tag"
    )
    broken = write(tmp_path / "alone" / "broken.yaml", "task: [a\n")
    assert f"{broken}, line 2: not valid YAML" in refused(TaskConfigError, [str(broken)], TaskOptions())


def test_missing_data_is_told_with_its_task(tmp_path: Path) -> None:
    options = TaskOptions(include_path=str(tmp_path), data_dir=str(tmp_path))
    assert refused(DataNotFoundError, ["gsm8k"], options).startswith(
        f"task 'gsm8k': data set openai/gsm8k/main is not in {tmp_path}/openai/gsm8k nor in "
    )
    write_task(tmp_path, "own", "training_split: train\n")
    assert refused(DataNotFoundError, ["own"], options).startswith("task 'own': data set json: ")
    assert "has no split 'train' (it has: test)" in refused(DataNotFoundError, ["own"], options)


def test_tasks_that_cannot_be_run(tmp_path: Path) -> None:
    options = TaskOptions(include_path=str(tmp_path))
    write_task(tmp_path, "own", "unsafe_code: true\ntraining_split: nowhere\n")
    assert "task 'own' runs code" in refused(UnsupportedTaskError, ["own"], options)
    allowed = TaskOptions(include_path=str(tmp_path), confirm_run_unsafe_code=True)
    assert "has no split 'nowhere'" in refused(DataNotFoundError, ["own"], allowed)
    write_task(tmp_path, "own", "doc_to_image: q\n")
    assert "task 'own' needs images" in refused(UnsupportedTaskError, ["own"], options)


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(
        tmp_path / "code.py",
        "import logging, sys, warnings\nprint('noise')\nprint('noise', file=sys.stderr)\nwarnings.warn('noise')\n"
        "logging.getLogger('lm_eval').warning('noise')\n"
        "def prepare(dataset):\n    return dataset.filter(lambda row: True)\n",
    )
    write_task(tmp_path, "own", "process_docs: !function code.prepare\nnum_fewshot: 2\n")
    load_tasks(["own"], TaskOptions(include_path=str(tmp_path)), {})
    assert capfd.readouterr() == ("", "")


# -- NLTK's data ------------------------------------------------------------------------------------------------------


def test_punkt_tab_is_required_before_a_task_that_scores_with_it(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nltk

    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr(nltk, "download", lambda *args, **options: pytest.fail("a download is tried"))
    monkeypatch.setattr(nltk_data, "_carried_by_llama_index", lambda: None)
    for module in [name for name in sys.modules if "ifeval" in name]:
        monkeypatch.delitem(sys.modules, module)
    options = TaskOptions(data_dir=str(data_dir))
    told = refused(MissingDependencyError, ["leaderboard_ifeval"], options)
    assert told.startswith("task 'leaderboard_ifeval': scoring needs NLTK's data set punkt_tab: `python -m nltk.down")
    assert load_tasks(["gsm8k"], options, {}).tasks


def test_punkt_tab_is_taken_from_llama_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nltk

    cache = tmp_path / "llama_index" / "core" / "_static" / "nltk_cache"
    write(cache / "tokenizers" / "punkt_tab" / "english" / "abbrev_types.txt", "dr\n")
    write(tmp_path / "llama_index" / "core" / "__init__.py", "raise AssertionError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.delitem(sys.modules, "llama_index", raising=False)
    nltk_data.require_punkt_tab()
    nltk_data.require_punkt_tab()
    assert nltk.data.path == [str(cache)]


def test_a_task_that_runs_code_is_refused_for_that_and_not_for_what_else_it_lacks(tmp_path: Path) -> None:
    write(tmp_path / "code.py", "import no_such_package\n")
    path = write_task(tmp_path, "own", "process_docs: !function code.prepare\nunsafe_code: true\n")
    assert "runs code that the model writes" in refused(UnsupportedTaskError, [str(path)], TaskOptions())
