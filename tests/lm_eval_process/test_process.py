"""The real lm-eval as a child process: what it is told and given, what is shown of it, and how it ends.

Most tests put a package ``lm_eval`` of their own before the real one, for the child alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import io
import json
import os
import pickle
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.errors import AssayError, MissingDependencyError, SpecificationError
from assay.lm_eval_process.process import run_lm_eval
from tests.servers.scripted import ScriptedServer

URL = "http://127.0.0.1:9"
PATIENCE = 30.0
"""Seconds after which something that should happen never will."""

PRELUDE = """
import json, os, pathlib, subprocess, sys

given = dict(zip(sys.argv, [*sys.argv[1:], ""]))
out = pathlib.Path(given["--output_path"])
model_args = dict(pair.split("=", 1) for pair in given["--model_args"].split(","))

def write(stamp="2026-01-02T03-04-05.000006", task=given["--tasks"], value=0.5, folder=None, **model):
    file = out / (folder or model_args["model"]) / f"results_{stamp}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    asked = {**model_args, **model}
    file.write_text(json.dumps({"results": {task: {"acc,none": value}}, "config": {"model_args": asked}}))
"""

Fake = Callable[[str], None]


@pytest.fixture
def fake_lm_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Let the child run this code for ``python -m lm_eval``; `write` in it writes a results file."""
    package = tmp_path / "fake" / "lm_eval"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(package.parent))

    def install(code: str) -> None:
        (package / "__main__.py").write_text(PRELUDE + textwrap.dedent(code))

    install("write()")
    return install


# -- what the child is told and given ---------------------------------------------------------------------------------


def test_very_many_tasks_have_a_log(tmp_path: Path, fake_lm_eval: Fake) -> None:
    tasks = ",".join(f"é{number}" for number in range(100))
    fake_lm_eval("pass")
    with pytest.raises(FileNotFoundError, match=r"its output is in .*/é0,é1,.*_lm_eval\.log$"):
        run_lm_eval(URL, "m", str(tmp_path / "out"), tasks)
    (log,) = (tmp_path / "out").glob("*_lm_eval.log")
    assert len(log.name.encode()) <= 255


def told(tmp_path: Path, fake: Fake, **options: Any) -> dict[str, Any]:
    """The child's arguments, environment and working directory."""
    told_file = tmp_path / "told.json"
    fake(f"""
        told = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd(), "path": sys.path}}
        pathlib.Path({str(told_file)!r}).write_text(json.dumps(told))
        write()
    """)
    arguments: dict[str, Any] = {"base_url": URL, "model": "m", "results_dir": str(tmp_path / "out"), "task": "gsm8k"}
    shutil.rmtree(tmp_path / "out" / "m", ignore_errors=True)
    run_lm_eval(**(arguments | options))
    document: dict[str, Any] = json.loads(told_file.read_text())
    return document


def test_the_command_line(tmp_path: Path, fake_lm_eval: Fake) -> None:
    out = tmp_path / "out"
    assert told(tmp_path, fake_lm_eval)["arguments"] == shlex.split(
        f"--model local-chat-completions --tasks gsm8k --model_args model=m,base_url={URL}/v1/chat/completions,"
        f"tokenized_requests=False,tokenizer_backend=None,num_concurrent=1,timeout=7200 "
        f"--log_samples --output_path {out} --apply_chat_template --fewshot_as_multiturn"
    )
    everything = told(
        tmp_path,
        fake_lm_eval,
        base_url=f"{URL}/v1/",
        limit=20,
        gen_kwargs="temperature=0.5,top_p=0.9",
        max_length=4096,
        fewshot_as_multiturn=False,
        num_fewshot=0,
        max_concurrent=8,
        timeout=0.5,
        extra_args=["--seed", "7"],
    )
    assert everything["arguments"] == shlex.split(
        f"--model local-chat-completions --tasks gsm8k --model_args model=m,base_url={URL}/v1/chat/completions,"
        f"tokenized_requests=False,tokenizer_backend=None,num_concurrent=8,timeout=1,max_length=4096 "
        f"--log_samples --output_path {out} --limit 20 --apply_chat_template --fewshot_as_multiturn false "
        f"--num_fewshot 0 --gen_kwargs temperature=0.5,top_p=0.9 --seed 7"
    )
    assert told(tmp_path, fake_lm_eval, use_chat=False)["arguments"] == shlex.split(
        f"--model local-completions --tasks gsm8k --model_args model=m,base_url={URL}/v1/completions,"
        f"tokenized_requests=False,tokenizer_backend=None,num_concurrent=1,timeout=7200 "
        f"--log_samples --output_path {out}"
    )


def test_the_environment_is_the_childs_own(tmp_path: Path, fake_lm_eval: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    before = dict(os.environ)
    child = told(tmp_path, fake_lm_eval)
    assert dict(os.environ) == before
    environment = child["environment"]
    assert environment["OPENAI_API_KEY"] == "EMPTY"
    assert environment["OPENAI_API_BASE"] == f"{URL}/v1"
    changed = {name for name in environment | before if environment.get(name) != before.get(name)}
    assert changed - {"LC_CTYPE"} == {"OPENAI_API_KEY", "OPENAI_API_BASE", "PYTHONUNBUFFERED"}
    assert child["folder"] == os.getcwd()


def test_ifeval_is_told_where_its_sentence_splitter_lies(tmp_path: Path, fake_lm_eval: Fake) -> None:
    if importlib.util.find_spec("nltk") is None:
        pytest.skip("NLTK is not installed")
    folders = told(tmp_path, fake_lm_eval, task="leaderboard_ifeval")["environment"]["NLTK_DATA"].split(os.pathsep)
    assert any((Path(folder) / "tokenizers" / "punkt_tab").is_dir() for folder in folders)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "a,b"}, "the model 'a,b' has a comma"),
        ({"base_url": "127.0.0.1:9"}, "must start with http"),
        ({"task": ""}, "no task is named"),
        ({"limit": 0}, "limit is 0"),
        ({"max_concurrent": 0}, "concurrency is 0"),
        ({"timeout": 0}, "request_timeout is 0"),
        ({"data_dir": "nowhere"}, "data_dir 'nowhere' is no folder"),
    ],
)
def test_values_that_cannot_be_meant(options: dict[str, Any], message: str, tmp_path: Path, fake_lm_eval: Fake) -> None:
    with pytest.raises(SpecificationError, match=message):
        told(tmp_path, fake_lm_eval, **options)
    assert not (tmp_path / "told.json").exists()


def test_a_missing_package_of_lm_evals_client(
    tmp_path: Path, fake_lm_eval: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tenacity" else original(name))
    with pytest.raises(MissingDependencyError, match=r'needs the package tenacity: pip install "assay\[lm-eval\]"'):
        told(tmp_path, fake_lm_eval)
    assert not (tmp_path / "told.json").exists()


# -- data -------------------------------------------------------------------------------------------------------------


def test_a_datasets_cache_is_the_childs(tmp_path: Path, fake_lm_eval: Fake) -> None:
    stored_data_set(tmp_path / "cache")
    child = told(tmp_path, fake_lm_eval, data_dir=str(tmp_path / "cache"))
    assert child["environment"]["HF_DATASETS_CACHE"] == str(tmp_path / "cache")
    assert child["folder"] == os.getcwd()


def test_hub_names_become_folders(tmp_path: Path, fake_lm_eval: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = tmp_path / "hub"
    write_sums(hub, 1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "fake")
    extra = ["--include_path", "mine", "--use_cache=answers", "--seed", "7"]
    child = told(tmp_path, fake_lm_eval, data_dir="hub", results_dir="out", extra_args=extra)
    assert child["folder"] == str(hub)
    assert str(hub) not in child["path"], "its folders are no modules"
    assert {str(tmp_path), str(tmp_path / "fake")} <= set(child["path"])
    moved = ["--include_path", str(tmp_path / "mine"), f"--use_cache={tmp_path / 'answers'}"]
    assert child["arguments"][-5:] == [*moved, "--seed", "7"]
    assert child["arguments"][child["arguments"].index("--output_path") + 1] == str(tmp_path / "out")
    assert not Path(child["environment"]["HF_DATASETS_CACHE"]).exists(), "it goes with the run"
    assert sorted(path.name for path in hub.rglob("*")) == ["README.md", "data", "owner", "sums", "test.jsonl"]


def write_sums(hub: Path, answer: int) -> None:
    folder = hub / "owner" / "sums" / "data"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test.jsonl").write_text(json.dumps({"answer": answer}) + "\n")
    # With a list of files the datasets library keeps rows under a name that does not change with the files.
    listed = [{"config_name": "default", "data_files": [{"split": "test", "path": "data/test.jsonl"}]}]
    (folder.parent / "README.md").write_text(f"---\nconfigs: {json.dumps(listed)}\n---\n")


def stored_data_set(cache: Path) -> None:
    """Store a data set ``owner/kept`` as the datasets library stores one that it downloads."""
    import datasets

    source = cache.parent / "source" / "kept"
    source.mkdir(parents=True)
    (source / "test.jsonl").write_text('{"answer": 10}\n')
    builder = datasets.load_dataset_builder(str(source), cache_dir=str(cache.parent / "scratch"))
    builder.download_and_prepare(output_dir=str(cache / "owner___kept" / "default" / "0.0.0" / "abc"))


def test_changed_files_and_stored_data_sets_are_read_offline(tmp_path: Path, fake_lm_eval: Fake) -> None:
    fake_lm_eval("""
        import datasets
        rows = [datasets.load_dataset(name, split="test") for name in ("owner/sums", "owner/kept")]
        write(value=[split.map(lambda row: {"answer": row["answer"] * 2})["answer"][0] for split in rows])
    """)
    data = tmp_path / "data"
    stored_data_set(data)
    before = sorted(data.rglob("*"))
    for number, answer in enumerate((1, 2)):
        write_sums(data, answer)
        results, _ = run_lm_eval(URL, "m", str(tmp_path / f"out{number}"), "gsm8k", data_dir=str(data))
        assert results == {"gsm8k": {"acc,none": [2 * answer, 20]}}
    assert [path for path in sorted(data.rglob("*")) if "sums" not in str(path) and path.name != "owner"] == before


def test_lm_eval_itself_reads_a_datasets_cache_offline(data_dir: Path, tmp_path: Path) -> None:
    import datasets

    source = data_dir / "openai" / "gsm8k"
    builder = datasets.load_dataset_builder(str(source), "main", cache_dir=str(tmp_path / "scratch"))
    builder.download_and_prepare(output_dir=str(tmp_path / "cache" / "openai___gsm8k" / "main" / "0.0.0" / "abc"))
    with ScriptedServer(models=["m"]) as server:
        results, file = run_lm_eval(
            server.url, "m", str(tmp_path / "out"), "gsm8k", limit=2, data_dir=str(tmp_path / "cache")
        )
        assert server.count == 2
    assert set(results) == {"gsm8k"}
    assert Path(file).parent == tmp_path / "out" / "m"


# -- what is shown and kept -------------------------------------------------------------------------------------------


def test_output_is_shown_and_logged(tmp_path: Path, fake_lm_eval: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake_lm_eval("""
        print("to stdout: é", flush=True)
        print("to stderr", file=sys.stderr)
        os.write(1, b"half of \\xc3")
        import time; time.sleep(0.1)
        os.write(1, b"\\xa9\\r 50%\\r100%\\n\\xff\\n")
        write()
    """)
    run_lm_eval(URL, "m", str(tmp_path / "out"), "gsm8k")
    shown = capsys.readouterr()
    assert shown.out == "to stdout: é\nto stderr\nhalf of é\r 50%\r100%\n\ufffd\n"
    assert shown.err == ""
    log = (tmp_path / "out" / "gsm8k_lm_eval.log").read_bytes()
    assert log == "to stdout: é\nto stderr\nhalf of é\r 50%\r100%\n".encode() + b"\xff\n"


class _Output(io.TextIOWrapper):
    """A terminal that cannot show everything, and does something at the first thing that it shows."""

    def __init__(self, do: Callable[[], None]) -> None:
        super().__init__(io.BytesIO(), encoding="ascii")
        self._do = do

    def write(self, text: str) -> int:
        self._do()
        return super().write(text)


def test_output_is_shown_as_it_comes(tmp_path: Path, fake_lm_eval: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "seen"
    fake_lm_eval(f"""
        import time
        print("asking… ", end="")
        deadline = time.monotonic() + {PATIENCE}
        while not os.path.exists({str(seen)!r}) and time.monotonic() < deadline:
            time.sleep(0.01)
        write(value=os.path.exists({str(seen)!r}))
    """)
    output = _Output(seen.touch)
    monkeypatch.setattr(sys, "stdout", output)
    results, _ = run_lm_eval(URL, "m", str(tmp_path / "out"), "gsm8k")
    assert results["gsm8k"]["acc,none"] is True
    assert output.buffer.getvalue() == b"asking? "  # type: ignore[attr-defined]


# -- how it ends ------------------------------------------------------------------------------------------------------


def test_a_failure_names_the_command_and_the_log(tmp_path: Path, fake_lm_eval: Fake) -> None:
    fake_lm_eval('print("trying"); raise RuntimeError("the \\x1b[31mserver\\x1b[0m said no")')
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_lm_eval(URL, "m", str(tmp_path / "out"), "a/b,c", limit=3)
    error = caught.value
    log = tmp_path / "out" / "a_b,c_lm_eval.log"
    assert isinstance(error, AssayError)
    assert error.returncode == 1
    assert error.cmd[:3] == [sys.executable, "-m", "lm_eval"]
    message = str(error)
    assert "exited with 1 (RuntimeError: the [31mserver[0m said no)" in message
    assert str(log) in message
    assert shlex.join(error.cmd) in message
    assert "\n" not in message
    assert "trying" in log.read_text()
    assert str(pickle.loads(pickle.dumps(error))) == message


def test_a_killed_child(tmp_path: Path, fake_lm_eval: Fake) -> None:
    fake_lm_eval("os.kill(os.getpid(), 9)")
    with pytest.raises(subprocess.CalledProcessError, match="was killed by signal 9; its whole output"):
        run_lm_eval(URL, "m", str(tmp_path / "out"), "gsm8k")


def test_a_log_that_cannot_be_written(tmp_path: Path, fake_lm_eval: Fake) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(AssayError, match="cannot write to the output directory"):
        told(tmp_path, fake_lm_eval)


HOLD = "import fcntl, signal, sys, time; signal.signal(15, signal.SIG_IGN); file = open(sys.argv[1], 'w'); "
HOLD += "fcntl.flock(file, 2); print('held', flush=True); time.sleep(3600)"

LINGER = f"""
    import fcntl, time
    own = open(out / "own", "w")
    fcntl.flock(own, fcntl.LOCK_EX)
    subprocess.Popen([sys.executable, "-c", {HOLD!r}, out / "other"])
    time.sleep(3600)
"""
"""Runs for an hour with a process of its own; each holds a lock for as long as it lives."""

LEAVE = f"""
    helper = subprocess.Popen([sys.executable, "-c", {HOLD!r}, out / "other"], stdout=subprocess.PIPE)
    helper.stdout.readline()
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    write()
"""
"""Ends well, and leaves two processes behind: one that holds a lock, one that holds the child's output open."""


def assert_released(out: Path, *names: str) -> None:
    """The processes that hold these locks, or both of LINGER's, are gone."""
    deadline = time.monotonic() + PATIENCE
    for name in names or ("own", "other"):
        with (out / name).open("w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    assert time.monotonic() < deadline, f"{name} still runs"
                    time.sleep(0.01)


def test_what_lm_eval_leaves_behind_is_ended(tmp_path: Path, fake_lm_eval: Fake) -> None:
    fake_lm_eval(LEAVE)
    results, _ = run_lm_eval(URL, "m", str(tmp_path / "out"), "gsm8k")
    assert results["gsm8k"] == {"acc,none": 0.5}
    assert_released(tmp_path / "out", "other")


@pytest.mark.parametrize(
    ("number", "ending"),
    [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)],
)
def test_a_signal_ends_child_and_parent(
    number: signal.Signals, ending: int, tmp_path: Path, fake_lm_eval: Fake
) -> None:
    fake_lm_eval(LINGER)
    out, data, temporary = tmp_path / "out", tmp_path / "hub", tmp_path / "temporary"
    temporary.mkdir()
    write_sums(data, 1)
    # A background job, as this test may be, has them ignored.
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
    code += "signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += f"from assay.lm_eval_process.process import run_lm_eval as run; run({URL!r}, 'm', {str(out)!r}, 'gsm8k', "
    code += f"data_dir={str(data)!r})"
    with (
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(temporary)},
        ) as parent,
        ending_after(parent),
    ):
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"held\n"
        assert list(temporary.iterdir()) != []
        parent.send_signal(number)
        assert parent.wait() == ending
    assert_released(out)
    assert list(temporary.iterdir()) == []


@contextlib.contextmanager
def ending_after(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill a process that takes too long, so that waiting for it ends."""
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def test_an_exception_ends_the_child(tmp_path: Path, fake_lm_eval: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise BrokenPipeError("nobody listens")

    fake_lm_eval(LINGER)
    monkeypatch.setattr(sys, "stdout", _Output(fail))
    with pytest.raises(BrokenPipeError, match="nobody listens"):
        run_lm_eval(URL, "m", str(tmp_path / "out"), "gsm8k")
    monkeypatch.undo()
    assert_released(tmp_path / "out")


def test_a_handler_of_the_callers_own_is_left_alone(
    tmp_path: Path, fake_lm_eval: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise TimeoutError("the caller's patience is over")

    fake_lm_eval(LINGER)
    monkeypatch.setattr(sys, "stdout", _Output(lambda: signal.raise_signal(signal.SIGTERM)))
    previous = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(TimeoutError, match="patience"):
            run_lm_eval(URL, "m", str(tmp_path / "out"), "gsm8k")
        assert signal.getsignal(signal.SIGTERM) is stop
    finally:
        signal.signal(signal.SIGTERM, previous)
    monkeypatch.undo()
    assert_released(tmp_path / "out")


def test_ctrl_c_is_raised_once_the_child_is_gone(
    tmp_path: Path, fake_lm_eval: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_lm_eval(LINGER)
    monkeypatch.setattr(sys, "stdout", _Output(lambda: signal.raise_signal(signal.SIGINT)))
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_lm_eval(URL, "m", str(tmp_path / "out"), "gsm8k")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, previous)
    monkeypatch.undo()
    assert_released(tmp_path / "out")


def test_it_runs_in_a_thread(tmp_path: Path, fake_lm_eval: Fake) -> None:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(run_lm_eval(URL, "m", str(tmp_path / "out"), "gsm8k")[1]))
    thread.start()
    thread.join(PATIENCE)
    assert found == [str(tmp_path / "out" / "m" / "results_2026-01-02T03-04-05.000006.json")]


# -- which results file -----------------------------------------------------------------------------------------------


def found(tmp_path: Path, fake: Fake, code: str, task: str = "gsm8k") -> tuple[Any, str]:
    """The value and the name of the results file that is found after this code."""
    fake(code)
    results, file = run_lm_eval(URL, "m", str(tmp_path / "out"), task)
    return next(iter(results.values()))["acc,none"], Path(file).name


def test_the_newest_results_by_the_time_in_the_name(tmp_path: Path, fake_lm_eval: Fake) -> None:
    assert found(tmp_path, fake_lm_eval, 'write("2031-01-01T00-00-00.000001", value=0.1)')[0] == 0.1
    code = """
        write("2030-01-01T10-00-00.000002", value=0.2)
        write("2030-01-01T10-00-01", value=0.3)
        for minute in range(20):
            write(f"2030-01-01T09-{minute:02}-59.000001", value=0.6)
        write("2030-01-01T09-59-59.999999", value=0.4)
        write("2032-01-01T00-00-00.000000_copy", value=0.5)
        (out / "m" / "results_2033-01-01T00-00-00.000000.json").write_text("half a docu")
        (out / "m" / "results_2034-01-01T00-00-00.000000.json").write_text("[]")
    """
    assert found(tmp_path, fake_lm_eval, code) == (0.3, "results_2030-01-01T10-00-01.json")


def test_results_of_other_runs_are_not_this_ones(tmp_path: Path, fake_lm_eval: Fake) -> None:
    code = """
        write("2030-01-01T00-00-00.000001", value=0.1)
        write("2030-01-01T00-00-00.000002", value=0.2, task="gsm8k_cot")
        write("2030-01-01T00-00-00.000003", value=0.3, model="n")
        write("2030-01-01T00-00-00.000004", value=0.4, base_url="http://elsewhere/v1/chat/completions")
    """
    assert found(tmp_path, fake_lm_eval, code)[0] == 0.1


def test_no_results_file(tmp_path: Path, fake_lm_eval: Fake) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"no results file for 'gsm8k' below .*; its output is in .*log"
    ) as none:
        found(tmp_path, fake_lm_eval, "")
    assert isinstance(none.value, AssayError)
    found(tmp_path, fake_lm_eval, 'write("2099-01-01T00-00-00.000001")')
    with pytest.raises(FileNotFoundError, match="no results file for 'gsm8k' below") as old:
        found(tmp_path, fake_lm_eval, "")
    assert "of another run" not in str(old.value)
    with pytest.raises(FileNotFoundError, match=r"results_2026-\S+ is of another run; its output is in"):
        found(tmp_path, fake_lm_eval, 'write(task="gsm8k_cot")')


@pytest.mark.parametrize("task", ["gsm8k,arc_easy", "ai2_arc", "arc_*", "tasks/own.yaml"])
def test_what_lists_tags_patterns_and_files_stand_for(
    task: str, tmp_path: Path, fake_lm_eval: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "own.yaml").touch()
    held = {"gsm8k,arc_easy": ["gsm8k", "arc_easy"], "tasks/own.yaml": ["own"]}.get(task, ["arc_easy", "arc_challenge"])
    code = f"""
        write("2030-01-01T00-00-00.000001")
        file = next(out.rglob("results_*.json"))
        document = json.loads(file.read_text())
        document["results"] = {{name: {{"acc,none": 0.7}} for name in {held!r}}}
        file.write_text(json.dumps(document))
    """
    assert found(tmp_path, fake_lm_eval, code, task)[0] == 0.7
