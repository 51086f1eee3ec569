"""The command line as a person meets it: one clear line for each mistake, and its exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from assay.cli import cli
from tests.servers.scripted import Fault, ScriptedServer

TASKS = Path(__file__).parent.parent / "evaluation_tasks"


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(answer=lambda _: "The answer is 8", models=["scripted"]) as running:
        yield running


def assay(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "assay", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env={**os.environ, **environment},
        check=False,
    )


def right(body: dict[str, Any]) -> str:
    numbers = [int(word) for word in body["messages"][-1]["content"].split() if word.isdigit()]
    return f"The answer is {sum(numbers)}"


def run(server: ScriptedServer, cwd: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    usual = {"--base-url": server.url, "--model": "scripted", "--include-path": str(TASKS)}
    given = [text for option, value in usual.items() if option not in arguments for text in (option, value)]
    return assay("run", *given, *arguments, cwd=cwd, **environment)


def test_a_table_and_a_verdict(server: ScriptedServer, tmp_path: Path) -> None:
    ran = run(server, tmp_path, "counting", "--limit", "10", "--min", "exact_match=0.05")
    assert ran.returncode == 0, ran.stderr
    head, row, *_ = ran.stdout.splitlines()
    assert head.split()[:4] == ["task", "metric", "value", "stderr"]
    assert row.split()[:4] == ["counting", "exact_match,get-answer", "0.1000", "0.1000"]
    assert "PASS" in ran.stdout
    assert list((tmp_path / "results" / "scripted").glob("results_*.json"))
    assert "10 samples" in ran.stderr
    assert "\x1b" not in ran.stdout + ran.stderr


def test_json_is_all_there_is_on_stdout(server: ScriptedServer, tmp_path: Path) -> None:
    ran = run(server, tmp_path, "counting,naming", "--limit", "0.1", "--json")
    document: dict[str, Any] = json.loads(ran.stdout)
    assert document["n-samples"]["naming"] == {"original": 60, "effective": 6}
    assert {score["task"] for score in document["assay"]["scores"]} == {"counting", "naming"}
    assert Path(tmp_path / document["results_file"]).is_file()


def test_a_report_lies_beside_the_results_unless_it_is_not_wanted(server: ScriptedServer, tmp_path: Path) -> None:
    ran = run(server, tmp_path, "counting", "--limit", "5")
    (report,) = (tmp_path / "results" / "scripted").glob("report_*.html")
    assert ran.stdout.splitlines()[-1] == f"report   {report.relative_to(tmp_path)}"
    # All but the three wrong answers at the top are deflated: no parser of HTML sees what models say.
    assert report.read_text().count("The answer is 8") == 3
    report.unlink()
    ran = run(server, tmp_path, "counting", "--limit", "5", "--fresh", "--no-report")
    assert "report" not in ran.stdout
    assert not list((tmp_path / "results" / "scripted").glob("report_*"))


def test_a_minimum_that_is_not_met(server: ScriptedServer, tmp_path: Path) -> None:
    ran = run(server, tmp_path, "counting", "--limit", "10", "--min", "exact_match=0.9")
    assert ran.returncode == 1
    assert "FAIL" in ran.stdout


def test_a_task_that_sets_logging_up_does_not_let_lm_eval_speak(server: ScriptedServer, tmp_path: Path) -> None:
    speak = "logging.getLogger('{}.any').warning('{} speaks')"
    lines = ["import logging", "def score(doc, results):", "  logging.basicConfig()"]
    lines += [f"  {speak.format(name, name)}" for name in ("lm_eval", "assay")] + ["  return {'exact_match': 1}"]
    (tmp_path / "own.py").write_text("\n".join(lines))
    own = f"include: {TASKS / 'counting.yaml'}\ntask: own\nprocess_results: !function own.score\n"
    (tmp_path / "own.yaml").write_text(own)
    ran = run(server, tmp_path, "own.yaml", "--limit", "2")
    assert ran.returncode == 0, ran.stderr
    assert "lm_eval speaks" not in ran.stderr
    assert "assay speaks" in ran.stderr


MISTAKES: list[tuple[list[str], int, str]] = [
    (["countin"], 2, "near: counting"),
    (["counting", "--min", "exact_match,strict=0.5"], 2, "it reports exact_match,get-answer"),
    (["counting", "--min", "exact_match"], 2, "is no minimum"),
    (["counting", "--limit", "0"], 2, "limit is 0"),
    (["counting", "--limit", "-1"], 2, "limit is -1"),
    (["counting", "--limit", "many"], 2, "'many' is not a valid float"),
    (["counting", "--num-fewshot", "-1"], 2, "num_fewshot is -1"),
    (["counting", "--concurrency", "0"], 2, "concurrency is 0"),
    (["counting", "--gen-kwargs", "temperature"], 2, "gen_kwargs"),
    (["counting", "--gen-kwargs", "until=5"], 2, "gen_kwargs: until is 5; it must be a text"),
    (["counting", "--gen-kwargs", "max_gen_toks=abc"], 2, "gen_kwargs: max_gen_toks is 'abc'; it must be a whole"),
    (["counting", "--samples", "[1]"], 2, "samples must name documents by task"),
    (["counting", "--samples", '{"counting": [60]}'], 2, "document 60 of 'counting', which has 60"),
    (["counting", "--samples", '{"naming": [6]}'], 2, "none of the tasks to run: counting"),
    (["counting", "--seed", "1,2"], 2, "the seed '1,2' cannot be read"),
    (["counting", "--output-dir", "/proc/nowhere"], 2, "/proc/nowhere"),
    (["counting", "--include-path", "/nowhere"], 2, "/nowhere"),
    (["counting", "--model", "other"], 2, "it serves 'scripted'"),
    (["counting", "--base-url", "http://127.0.0.1:9"], 4, "nothing answers at http://127.0.0.1:9"),
    (["countin", "--base-url", "http://127.0.0.1:9"], 2, "near: counting"),
    (["counting", "--base-url", "http://127.0.0.1:9", "--min", "exact=1"], 2, "it reports exact_match,get-answer"),
    (["counting", "--base-url", "http://127.0.0.1:9", "--min", "other:exact_match=1"], 2, "no task or group 'other'"),
    (["counting", "--base-url", "127.0.0.1:8000"], 2, "http://"),
    (["counting", "--base-url", "http://a:1", "--base-url", "http://a:1/v1"], 2, "named twice"),
    (["counting", "--base-url", "@missing"], 2, "cannot read the base URLs in missing"),
    (["counting", "--base-urls-file", "/dev/null"], 2, "/dev/null holds no base URL"),
    (["arc_easy"], 2, "log-likelihood"),
    (["counting", "--retry-failed"], 2, "holds no run of these tasks and settings"),
    (["counting", "--retry-failed", "--fresh"], 2, "choose one"),
    (["counting", "--stall-timeout", "-1"], 2, "stall_timeout is -1"),
    (["counting", "--give-up-after", "0"], 2, "give_up_after is 0"),
    (["counting", "--api-key-file", "missing"], 2, "cannot read the API key file missing"),
    (["counting", "--ca-file", "missing.pem"], 2, "cannot read the CA file missing.pem"),
    (["counting", "--client-cert", "missing.pem"], 2, "cannot read the client certificate missing.pem"),
    (["counting", "--insecure", "--ca-file", "/dev/null"], 2, "choose one"),
    ([","], 2, "name at least one task"),
    (["counting", "--frehs"], 2, "--fresh"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), MISTAKES, ids=[" ".join(case[0]) for case in MISTAKES])
def test_a_mistake_is_one_clear_line(
    server: ScriptedServer, tmp_path: Path, data_dir: Path, arguments: list[str], code: int, message: str
) -> None:
    asked = len(server.answered)
    ran = run(server, tmp_path, "--data-dir", str(data_dir), *arguments)
    assert (ran.returncode, ran.stdout) == (code, ""), ran.stderr
    assert message in ran.stderr
    assert ran.stderr.startswith("assay: ")
    assert ran.stderr.count("\n") == 1
    assert len(server.answered) == asked


def test_malformed_yaml(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("task: broken\n  metric_list: [\n")
    ran = run(server, tmp_path, "broken", "--include-path", str(tmp_path))
    assert ran.returncode == 2
    assert "broken.yaml, line 2" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_pipe_in_place_of_yaml_is_not_waited_for(server: ScriptedServer, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "piped.yaml")
    ran = run(server, tmp_path, "counting", "--include-path", str(tmp_path))
    assert ran.returncode == 2
    assert "piped.yaml: is no regular file" in ran.stderr
    (tmp_path / "piped.yaml").unlink()
    (tmp_path / "gone.yaml").symlink_to(tmp_path / "nowhere")
    ran = run(server, tmp_path, "counting", "--include-path", str(tmp_path))
    assert ran.returncode == 2
    assert "gone.yaml: No such file" in ran.stderr


def test_everything_failed(tmp_path: Path) -> None:
    with ScriptedServer(models=["scripted"], faults=(Fault("http_400"),)) as broken:
        ran = run(broken, tmp_path, "counting", "--limit", "5")
        assert ran.returncode == 4
        assert "5 bad_request" in ran.stderr
        assert "no sample could be scored" in ran.stderr
        ran = run(broken, tmp_path, "counting", "--limit", "5", "--min", "exact_match=0")
        assert ran.returncode == 4
        assert "INVALID" in ran.stdout


def test_a_key_that_is_refused_is_told_before_any_data_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "rows.py").write_text("def load(**_):\n    raise ValueError('the data was read')\n")
    (folder / "unread.yaml").write_text(
        "task: unread\ncustom_dataset: !function rows.load\ntest_split: test\ndoc_to_text: q\ndoc_to_target: a\n"
    )
    with ScriptedServer(models=["scripted"], api_key="another") as guarded:
        asked = ["unread", "--include-path", str(folder)]
        ran = run(guarded, tmp_path, *asked, "--api-key-env", "MY_KEY", MY_KEY="mine")
        unset = run(guarded, tmp_path, *asked, OPENAI_API_KEY="")
        assert guarded.count == 0
    assert ran.returncode == unset.returncode == 4
    assert "refuses the key (HTTP 401" in ran.stderr
    assert "Incorrect API key provided); check the key: it is read from the environment variable MY_KEY" in ran.stderr
    assert "environment variable OPENAI_API_KEY (not set)" in unset.stderr


@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        ("http_400", "asking again does not help: fix what the messages name first"),
        ("http_404", "asking again does not help: fix what the messages name first"),
        ("unreadable_content", "asking again does not help: fix what the messages name first"),
        ("http_500", "run the same command again to ask only these\n"),
    ],
)
def test_samples_without_a_score_are_no_success_unless_a_check_holds_all_the_same(
    tmp_path: Path, fault: str, advice: str
) -> None:
    with ScriptedServer(models=["scripted"], answer=right, faults=(Fault(fault, indices=frozenset({3})),)) as flawed:
        how = ("counting", "--limit", "10", "--max-attempts", "1", "--concurrency", "1")
        ran = run(flawed, tmp_path, *how)
        assert ran.returncode == 4
        assert "1 sample failed and has no score" in ran.stderr
        assert advice in ran.stderr
        assert "no check (--min, --max) gave a verdict without them: exit code 4" in ran.stderr
        judged = run(flawed, tmp_path, *how, "--min", "exact_match=0.9")
        assert judged.returncode == 0, judged.stderr
        assert "exit code 4" not in judged.stderr


def test_the_key_is_in_no_output_or_file(tmp_path: Path) -> None:
    key = "sk-very-secret-0123456789"
    with ScriptedServer(models=["scripted"], api_key=key) as guarded:
        where = ["--base-url", guarded.url, "--model", "scripted", "--include-path", str(TASKS)]
        ran = assay("run", "counting", *where, "--limit", "3", "--api-key-env", "MY_KEY", cwd=tmp_path, MY_KEY=key)
        assert ran.returncode == 0, ran.stderr
        refused = assay("run", "counting", *where, "--limit", "3", cwd=tmp_path, OPENAI_API_KEY=key[:-1])
        assert refused.returncode == 4
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) >= 3
    for text in [ran.stdout, ran.stderr, refused.stdout, refused.stderr, *(str(path.read_bytes()) for path in written)]:
        assert key[:-1] not in text


@pytest.mark.parametrize("command", [["rnu"], ["run"], ["tasks", "no-such-task-anywhere"], ["helm", "show", "x" * 300]])
def test_other_commands_mistakes(tmp_path: Path, command: list[str]) -> None:
    ran = assay(*command, cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr.startswith("assay: ")
    assert ran.stderr.count("\n") == 1


def test_tasks_are_listed(tmp_path: Path) -> None:
    ran = assay("tasks", "gsm8k*", cwd=tmp_path)
    assert ran.stdout.splitlines()[0] == "task         generate_until         gsm8k"
    assert "gsm8k_cot" in [line.split()[-1] for line in ran.stdout.splitlines()]
    listed = json.loads(assay("tasks", "mmlu_pro", "--json", cwd=tmp_path).stdout)
    assert {"name": "mmlu_pro", "kind": "group", "output_type": None} in listed
    assert {"name": "leaderboard_mmlu_pro", "kind": "task", "output_type": "multiple_choice"} in listed


@pytest.mark.parametrize("shape", [[], ["--json"]])
def test_the_verdict_is_told_though_nobody_reads(server: ScriptedServer, tmp_path: Path, shape: list[str]) -> None:
    where = ["--base-url", server.url, "--model", "scripted", "--include-path", str(TASKS)]
    command = [
        sys.executable,
        "-m",
        "assay",
        "run",
        "counting",
        *where,
        "--limit",
        "5",
        "--min",
        "exact_match=0",
        *shape,
    ]
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run(command, stdout=write, stderr=write, timeout=60, cwd=tmp_path, check=False)
    os.close(write)
    assert ran.returncode == 0
    assert list((tmp_path / "results" / "scripted").glob("results_*.json"))


@pytest.mark.parametrize("option", ["--gen-kwargs", "--gen_kwargs"])
def test_generation_settings_are_merged_and_near_misses_asked_about(
    server: ScriptedServer, tmp_path: Path, option: str
) -> None:
    settings = [option, "temperatur=0.5", "top_k=3", option, '{"max_gen_toks": 77}', f"{option}=top_k=4", "min_p=0.5"]
    ran = run(server, tmp_path, *settings, "counting", "--limit", "9", "--limit", "1.5", "--no-probe")
    assert ran.returncode == 0, ran.stderr
    sent = server.answered[-1]
    assert [sent[name] for name in ("temperatur", "top_k", "max_tokens", "min_p")] == [0.5, 4, 77, 0.5]
    for said in (
        "--limit is given 2 times; the last one counts",
        "--gen-kwargs has top_k twice; 4 counts",
        "counting: 1 samples",
        "limit is 1.5: above 1 it counts documents, 1 of each task",
        "gen_kwargs has 'temperatur', which is sent as it is: do you mean 'temperature'?",
    ):
        assert said in ran.stderr


def test_a_prompt_that_cannot_be_written_is_one_clear_line(server: ScriptedServer, tmp_path: Path) -> None:
    asked = server.count
    ran = run(server, tmp_path, "drawing", "--num-fewshot", "60")
    assert ran.returncode == 2
    told = "cannot write document 0's prompt: it needs 60 examples, and there are 60 to choose from"
    assert told in ran.stderr
    assert server.count == asked
    assert "Traceback" not in ran.stderr


CANNOT_RUN = {
    "doc_to_image: [picture]": "needs images or sound",
    "doc_to_audio: [sound]": "needs images or sound",
    "process_results: !function lacking.score": "'no_such_package', which is not installed: pip install",
    "process_results: !function lazy.score": "'no_such_package' for scoring, which is not installed: pip install",
    "repeats: -1": "repeats is -1",
}


@pytest.mark.parametrize("line", CANNOT_RUN)
def test_what_cannot_run_is_refused_before_any_question(server: ScriptedServer, tmp_path: Path, line: str) -> None:
    (tmp_path / "lacking.py").write_text("import no_such_package\n")
    (tmp_path / "odd.yaml").write_text(
        f"include: {TASKS}/_template_yaml\ntask: odd\ndataset_kwargs: {{kind: odd}}\n{line}\n"
    )
    (tmp_path / "rows.py").write_text((TASKS / "rows.py").read_text())
    (tmp_path / "lazy.py").write_text("def score(doc, results):\n    import no_such_package\n")
    asked = server.count
    ran = run(server, tmp_path, "odd", "--include-path", str(tmp_path))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert CANNOT_RUN[line] in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert server.count == asked


def test_a_module_that_scoring_lacks_ends_the_run_and_not_the_answers(server: ScriptedServer, tmp_path: Path) -> None:
    code = "import importlib\n\ndef score(doc, results):\n    importlib.import_module('no_such_package')\n"
    (tmp_path / "lacking.py").write_text(code)
    (tmp_path / "odd.yaml").write_text(
        f"include: {TASKS}/_template_yaml\ntask: odd\ndataset_kwargs: {{kind: odd}}\n"
        "process_results: !function lacking.score\n"
    )
    where = ("odd", "--include-path", str(tmp_path), "--limit", "60", "--concurrency", "1")
    ran = run(server, tmp_path, *where)
    assert ran.returncode == 2
    assert "task 'odd' cannot be scored: it needs the Python module 'no_such_package'" in ran.stderr
    (tmp_path / "lacking.py").write_text("def score(doc, results):\n    return {'exact_match': 1.0}\n")
    asked = len(server.answered)
    ran = run(server, tmp_path, *where)
    assert ran.returncode == 0, ran.stderr
    assert 0 < len(server.answered) - asked < 60


@pytest.mark.parametrize("command", ["run", "gate", "calibrate", "probe", "helm run"])
def test_help_shows_every_option_once_in_its_section(command: str) -> None:
    with cli.make_context("assay", ["--help"], resilient_parsing=True) as context:
        chosen: click.Command | None = cli
        for name in command.split():
            assert isinstance(chosen, click.Group)
            chosen = chosen.get_command(context, name)
        assert chosen is not None
        with chosen.make_context(command, [], parent=context, resilient_parsing=True) as inner:
            inner.meta["assay.help_all"] = True
            text = chosen.get_help(inner)
            for option in chosen.get_params(inner):
                if isinstance(option, click.Option):
                    is_switch = option.secondary_opts == [f"--no-{option.opts[0][2:]}"]
                    name = f"--[no-]{option.opts[0][2:]}" if is_switch else option.opts[0]
                    assert len(re.findall(rf"^  (-\w, )?{re.escape(name)}(?=[ ,]|$)", text, re.MULTILINE)) == 1, name
    for heading in ("Server:", "TLS:"):
        assert f"\n{heading}\n" in text
    assert f"\n    assay {command} " in text  # an example that can be copied, on one line


def test_a_run_that_started_anew_says_to_go_on_without_that(tmp_path: Path) -> None:
    answers = iter(range(10))

    def answer(_: dict[str, Any]) -> str:
        next(answers)  # the eleventh request, and all after it, are refused
        return "The answer is 8"

    with ScriptedServer(answer=answer, models=["scripted"]) as server:
        ran = run(server, tmp_path, "counting", "--fresh", "--no-probe", "--concurrency", "4")
    assert ran.returncode == 4
    assert "the same command goes on with them (without --fresh)" in ran.stderr
