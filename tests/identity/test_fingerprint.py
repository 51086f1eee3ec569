"""Fingerprints of scripted servers: the same stays the same, what differs is found, what cannot be known is said."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.cli import main
from assay.errors import FileFormatError, SpecificationError, UnjudgeableError, UnsupportedTaskError
from assay.identity import (
    Fingerprint,
    Identity,
    IdentityOptions,
    IdentityResult,
    check_fingerprint,
    read_fingerprint,
    take_fingerprint,
    write_fingerprint,
)
from assay.identity.prompts import PROMPTS
from assay.types import ModelSpec
from tests.servers.scripted import ScriptedServer, reply_with

OF_THE_PREFLIGHT = 1
Change = Callable[[dict[str, float], str], dict[str, float]]


def model(change: Change = lambda top, _: top, *, more_tokens: int = 0) -> Callable[[dict[str, Any]], Any]:
    """A server whose likeliest tokens depend on the prompt alone, after a change."""

    def answer(body: dict[str, Any]) -> Any:
        prompt = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        source = random.Random(hashlib.sha256(prompt.encode()).digest())
        weights = [math.exp(source.gauss(0, 2)) for _ in range(30)]
        top = {f"t{place}": math.log(weight / sum(weights)) for place, weight in enumerate(weights)}
        top = change(top, prompt)
        likeliest = sorted(top, key=top.__getitem__, reverse=True)[:20]
        entries = [{"token": token, "logprob": round(top[token], 4), "bytes": None} for token in likeliest]
        reply = reply_with(likeliest[0], body, finish_reason="length")
        reply["usage"]["prompt_tokens"] = len(prompt.split()) + more_tokens
        if "messages" in body:
            reply["choices"][0]["logprobs"] = {"content": [{**entries[0], "top_logprobs": entries}]}
        else:
            reply["choices"][0]["logprobs"] = {"top_logprobs": [{each["token"]: each["logprob"] for each in entries}]}
        return reply

    return answer


def jittered(amount: float, seed: int = 0) -> Change:
    """Noise of its own at each call."""
    source = random.Random(seed)
    return lambda top, _: normalised({token: value + source.gauss(0, amount) for token, value in top.items()})


def shifted(amount: float) -> Change:
    """The same change each time, another for each prompt."""

    def change(top: dict[str, float], prompt: str) -> dict[str, float]:
        source = random.Random(f"shift {prompt}")
        return normalised({token: value + source.gauss(0, amount) for token, value in top.items()})

    return change


def upside_down(top: dict[str, float], _: str) -> dict[str, float]:
    """The likeliest token becomes the least likely one, whichever prompts are asked."""
    return normalised({token: -value for token, value in top.items()})


def normalised(top: dict[str, float]) -> dict[str, float]:
    total = math.log(sum(math.exp(value) for value in top.values()))
    return {token: value - total for token, value in top.items()}


def taken(answer: Any, **more: Any) -> Fingerprint:
    with ScriptedServer(answer=answer, models=["scripted"]) as server:
        return take_fingerprint(ModelSpec(base_url=server.url, model="scripted", **more), repetitions=4)


def checked(record: Fingerprint, answer: Any, noise: tuple[Fingerprint, ...] = (), **options: Any) -> IdentityResult:
    with ScriptedServer(answer=answer, models=["scripted"]) as server:
        spec = ModelSpec(base_url=server.url, model="scripted", endpoint=record.endpoint)
        result = check_fingerprint(record, spec, IdentityOptions(**options), noise)
        assert result.requests == server.count - OF_THE_PREFLIGHT
        return result


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_a_quiet_server_is_the_same_and_any_change_is_found(endpoint: Any) -> None:
    record = taken(model(), endpoint=endpoint)
    assert record.is_quiet
    assert len(record.prompts) == len(PROMPTS)
    same = checked(record, model())
    assert same.verdict is Identity.SAME
    assert same.requests <= 60
    different = checked(record, model(shifted(0.1)))
    assert different.verdict is Identity.DIFFERENT
    assert different.requests <= 5
    assert different.divergence is not None
    assert different.divergence > 1e-3
    assert different.largest[0].divergence >= different.largest[-1].divergence


def test_a_noisy_server_knows_its_noise() -> None:
    record = taken(model(jittered(0.05)))
    assert not record.is_quiet
    assert record.noise > 1e-4
    assert checked(record, model(jittered(0.05, seed=9))).verdict is Identity.SAME
    assert checked(record, model(shifted(1.0))).verdict is Identity.DIFFERENT


def test_what_another_build_changes_counts_as_noise_where_it_is_named() -> None:
    record, other_build = taken(model()), taken(model(shifted(0.05)))
    assert checked(record, model(shifted(0.05))).verdict is Identity.DIFFERENT
    assert checked(record, model(shifted(0.05)), noise=(other_build,)).verdict is Identity.SAME
    assert checked(record, model(shifted(0.05)), tolerate=0.01).verdict is Identity.SAME
    assert checked(record, model(shifted(1.0)), noise=(other_build,)).verdict is Identity.DIFFERENT


def test_another_template_is_found_by_the_number_of_prompt_tokens() -> None:
    result = checked(taken(model()), model(more_tokens=1))
    assert (result.verdict, result.requests) == (Identity.DIFFERENT, 1)
    assert "1 prompt token more than was recorded" in result.reason


def test_too_few_requests_are_inconclusive() -> None:
    result = checked(taken(model()), model(), requests=5)
    assert result.verdict is Identity.INCONCLUSIVE
    assert result.requests == 5
    assert result.verdict.exit_code == 3


def test_a_server_without_log_probabilities_is_said_to_be_that_after_three_requests() -> None:
    with (
        ScriptedServer(answer=lambda _: "Well", models=["scripted"]) as server,
        pytest.raises(UnsupportedTaskError, match=r"gives no log-probabilities .* try --completions"),
    ):
        take_fingerprint(ModelSpec(base_url=server.url, model="scripted"))
    assert server.count <= 3 + OF_THE_PREFLIGHT
    record = taken(model())
    with pytest.raises(UnsupportedTaskError, match="gives no log-probabilities"):
        checked(record, lambda _: "Well")


def test_prompts_without_log_probabilities_are_left_out() -> None:
    def answer(body: dict[str, Any]) -> Any:
        whole = model()(body)
        if not body["messages"][-1]["content"].isascii():  # as llama.cpp for halves of characters
            whole["choices"][0]["logprobs"] = None
        return whole

    record = taken(answer)
    assert [each.prompt for each in record.prompts] == [prompt for prompt in PROMPTS if prompt.isascii()]
    assert checked(record, answer).verdict is Identity.SAME


def test_a_server_that_answers_hardly_anything_is_no_verdict() -> None:
    asked = 0

    def answer(body: dict[str, Any]) -> Any:
        nonlocal asked
        asked += 1
        if asked > 2:
            raise ValueError("out of order")
        return model()(body)

    with pytest.raises(UnjudgeableError):
        taken(answer)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"alpha": 0.0}, "alpha is 0"),
        ({"beta": 0.7}, "beta is 0.7"),
        ({"requests": 0}, "at least one"),
        ({"size": 1e-5}, "cannot be told from it"),
        ({"size": float("nan")}, "cannot be told from it"),
        ({"tolerate": float("inf")}, "cannot be told from it"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_asked(options: dict[str, Any], says: str) -> None:
    record = msgspec.convert(msgspec.to_builtins(taken(model())), Fingerprint)
    with ScriptedServer(answer=model(), models=["scripted"]) as server:
        with pytest.raises(SpecificationError, match=says):
            check_fingerprint(record, ModelSpec(base_url=server.url, model="scripted"), IdentityOptions(**options))
        assert server.count == 0


def test_a_file_is_small_and_read_as_it_was_written(tmp_path: Path) -> None:
    record = taken(model(jittered(0.01)))
    file = write_fingerprint(tmp_path / "new" / "f.json", record)
    assert read_fingerprint(file) == record
    assert file.stat().st_size < 200_000
    assert len(file.read_text(encoding="utf-8").splitlines()) > len(record.prompts)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 1}', "[" * 100_000])
def test_a_file_that_is_no_fingerprint_is_one_line(content: str, tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    file.write_text(content)
    with pytest.raises(FileFormatError, match="is no fingerprint"):
        read_fingerprint(file)
    with pytest.raises(FileFormatError, match="cannot read the fingerprint"):
        read_fingerprint(tmp_path / "absent.json")


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file["prompts"][3].update(noise=[-1, -1]),
        lambda file: file["prompts"][3].update(noise=[1e308, 1]),
        lambda file: file["prompts"][3].update(noise=[]),
        lambda file: file["prompts"][3].update(top={"a": 5.0}),
        lambda file: file["prompts"][3].update(top={"a": -999.0}),
        lambda file: file["prompts"][3].update(top={"a": 0.0, "b": 0.0}),
        lambda file: file["prompts"][3].update(top={}),
        lambda file: file.update(prompts=file["prompts"][:5]),
        lambda file: file.update(prompts=file["prompts"][:1] * 50),
    ],
)
def test_answers_that_no_server_gives_are_no_fingerprint(damage: Callable[[Any], object], tmp_path: Path) -> None:
    file = write_fingerprint(tmp_path / "f.json", taken(model()))
    content = json.loads(file.read_text())
    damage(content)
    file.write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match="is no fingerprint"):
        read_fingerprint(file)


def test_a_server_that_lists_fewer_alternatives_is_not_compared() -> None:
    def answer(body: dict[str, Any]) -> Any:
        reply = model()(body)
        entries = reply["choices"][0]["logprobs"]["content"][0]
        entries["top_logprobs"] = entries["top_logprobs"][:5]
        return reply

    with pytest.raises(UnsupportedTaskError, match="lists 5 alternatives of the first token, and the record has 20"):
        checked(taken(model()), answer)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    file = write_fingerprint(tmp_path / "f.json", msgspec.structs.replace(taken(model()), format=9))
    with pytest.raises(FileFormatError, match="of a newer Assay"):
        read_fingerprint(file)


def test_the_commands(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "f.json")
    with ScriptedServer(answer=model(), models=["scripted"]) as server:
        where = ["--base-url", server.url]
        assert run("save", file, *where, "--model", "scripted") == 0
        assert "50 prompts, 8 times each; quiet" in capfd.readouterr().out
        assert run("check", file, *where) == 0
        assert capfd.readouterr().out.startswith("SAME  after ")
        assert run("check", file, *where, "--requests", "3", "--json") == 3
        assert json.loads(capfd.readouterr().out)["verdict"] == "inconclusive"
    with ScriptedServer(answer=model(upside_down), models=["scripted"]) as server:
        assert run("check", file, "--base-url", server.url) == 1
        shown = capfd.readouterr().out
    assert shown.startswith("DIFFERENT  after ")
    assert "was likeliest, now" in shown
    with ScriptedServer(answer=model(), models=["scripted"]) as server:
        assert run("save", str(tmp_path), "--base-url", server.url, "--model", "scripted") == 2
        assert run("save", f"{file}/below", "--base-url", server.url, "--model", "scripted") == 2
        assert server.count == 0  # refused before anything is asked
    assert run("check", str(tmp_path / "absent"), "--base-url", "http://127.0.0.1:9") == 2


def run(*arguments: str) -> Any:
    with pytest.raises(SystemExit) as ended:
        main(["fingerprint", *arguments])
    return ended.value.code
