"""Each check of a server against itself names its own fault and no other, and says what it cannot check."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from assay import ModelSpec
from assay.cli import main
from assay.client.openai import OpenAIModel
from assay.errors import NothingMeasuredError, SpecificationError
from assay.identity import Check, Finding, Outcome, SelfcheckOptions, SelfcheckReport, check_itself
from assay.identity.selfcheck.asking import Asker
from assay.identity.selfcheck.decoding import check_decoding
from tests.servers.planted import NAME, Fault, PlantedServer, SmallModel
from tests.servers.scripted import ScriptedServer

pytestmark = pytest.mark.slow

FAULTS: dict[Fault, Check] = {
    "decode_from_8": Check.DECODING,
    "decode_each_16": Check.DECODING,
    "decode_in_batches": Check.TOGETHER,
    "neighbour_prefix": Check.CACHE,
    "wrong_position": Check.POSITIONS,
    "unaligned_tokens": Check.TOKENS,
    "temperature_ignored": Check.TEMPERATURE,
    "always_greedy": Check.TEMPERATURE,
    "never_greedy": Check.TEMPERATURE,
    "top_p_ignored": Check.TOP_P,
    "seed_ignored": Check.SEED,
    "seed_constant": Check.SEED,
    "late_stop": Check.STOP,
    "stream_loses_end": Check.STREAMING,
    "token_too_many": Check.MAX_TOKENS,
    "usage_too_small": Check.USAGE,
    "prompt_count_off": Check.USAGE,
    "unnormalised": Check.LOGPROBS,
    "unordered": Check.LOGPROBS,
}


def checked(model: SmallModel, endpoint: Any = "chat", **options: Any) -> SelfcheckReport:
    with PlantedServer(model) as server:
        spec = ModelSpec(base_url=server.url, model=NAME, endpoint=endpoint)
        return check_itself(spec, SelfcheckOptions(**{"levels": (1, 4, 16), "with_probe": False, **options}))


def decoding(model: SmallModel) -> Finding:
    async def check(url: str) -> Finding:
        async with OpenAIModel(ModelSpec(base_url=url, model=NAME), api_key=None) as client:
            return await check_decoding(Asker(client, client, seed=0), alpha=1e-4)

    with PlantedServer(model) as server:
        return asyncio.run(check(server.url))


def outcomes(report: SelfcheckReport) -> dict[Check, Outcome]:
    return {each.check: each.outcome for each in report.findings}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named_and_no_other(fault: Fault) -> None:
    report = checked(SmallModel(fault))
    assert [each.check for each in report.faults] == [FAULTS[fault]]
    assert report.exit_code == 1
    assert fault == "never_greedy" or not any(each.outcome is Outcome.INCONCLUSIVE for each in report.findings)


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_sound_server_passes_every_check(endpoint: Any, noise: float) -> None:
    report = checked(SmallModel(noise=noise), endpoint, levels=(1, 4, 16, 64))
    assert set(outcomes(report).values()) == {Outcome.OK}, report.findings
    assert report.exit_code == 0


@pytest.mark.parametrize(
    ("fault", "lacks", "says"),
    [
        ("decode_from_8", (), "from token 8 of the answer on"),
        ("decode_from_8", ("prompt_logprobs",), "from token 8 of the answer on"),
        ("decode_from_8", ("prompt_logprobs", "echo"), "from token 8 of the answer on"),
        ("decode_each_16", (), "at every place of the sequence that is a multiple of 16"),
    ],
)
def test_where_decoding_goes_wrong_is_named_however_the_server_can_be_read(
    fault: Fault, lacks: tuple[str, ...], says: str
) -> None:
    found = decoding(SmallModel(fault, lacks=frozenset(lacks)))
    assert found.outcome is Outcome.FAULT
    assert found.says.startswith(says)


def test_a_server_that_reads_no_given_text_is_said_to() -> None:
    found = decoding(SmallModel(lacks=frozenset({"prompt_logprobs", "echo", "tokenize"})))
    assert found.outcome is Outcome.CANNOT
    assert "no log-probabilities of a given text" in found.says


@pytest.mark.parametrize("fault", ["decode_from_8", "decode_in_batches", "neighbour_prefix"])
def test_faults_are_seen_beneath_noise(fault: Fault) -> None:
    assert [each.check for each in checked(SmallModel(fault, noise=0.05)).faults] == [FAULTS[fault]]


def test_without_a_switch_the_cache_is_told_by_prompts_that_are_new() -> None:
    without = frozenset({"cache_prompt", "cached_tokens"})
    assert outcomes(checked(SmallModel(lacks=without)))[Check.CACHE] is Outcome.OK
    broken = checked(SmallModel("neighbour_prefix", lacks=without))
    assert [each.check for each in broken.faults] == [Check.CACHE]
    (together,) = (each for each in broken.findings if each.check is Check.TOGETHER)
    assert together.outcome is Outcome.CANNOT
    assert "no switch for its cache" in together.says


def test_a_server_without_log_probabilities_is_checked_in_what_is_left_and_said_to_lack_them() -> None:
    report = checked(SmallModel(lacks=frozenset({"chat_logprobs"})))
    found = outcomes(report)
    assert report.exit_code == 0
    assert {check for check, outcome in found.items() if outcome is Outcome.OK} == {
        Check.USAGE,
        Check.MAX_TOKENS,
        Check.STOP,
        Check.STREAMING,
    }
    assert all(
        each.says.startswith(
            "cannot, because the server gives no log-probabilities at this endpoint; try --completions"
        )
        for each in report.findings
        if each.outcome is Outcome.CANNOT
    )
    assert [each.check for each in checked(SmallModel("late_stop", lacks=frozenset({"chat_logprobs"}))).faults] == [
        Check.STOP
    ]


def test_a_server_that_ignores_the_seed_field_is_said_to() -> None:
    assert [each.check for each in checked(SmallModel(lacks=frozenset({"seed"}))).faults] == [Check.SEED]


def test_a_server_that_answers_nothing_is_no_verdict() -> None:
    def answer(_: Any) -> str:
        raise ValueError("out of order")

    with (
        ScriptedServer(answer=answer, models=[NAME]) as server,
        pytest.raises(NothingMeasuredError, match="no request"),
    ):
        check_itself(ModelSpec(base_url=server.url, model=NAME), SelfcheckOptions(with_probe=False))


@pytest.mark.parametrize(
    "options", [{"alpha": 0.0}, {"alpha": 0.5}, {"levels": ()}, {"levels": (1,)}, {"levels": (0, 4)}]
)
def test_options_that_make_no_sense_are_refused_before_anything_is_asked(options: dict[str, Any]) -> None:
    with PlantedServer() as server:
        with pytest.raises(SpecificationError):
            check_itself(ModelSpec(base_url=server.url, model=NAME), SelfcheckOptions(**options))
        assert server.count == len(server.probes) == 0


@pytest.fixture
def late() -> Iterator[str]:
    with PlantedServer(SmallModel("late_stop")) as server:
        yield server.url


def test_the_command(late: str, capfd: pytest.CaptureFixture[str]) -> None:
    where = ["selfcheck", "--base-url", late, "--model", NAME, "--at-once", "1,4", "--seed", "5"]
    assert run(*where, "--no-probe") == 1
    shown = capfd.readouterr().out
    assert "characters late" in shown
    assert "1 fault (stop)" in shown
    assert "at most 0.1%" in shown
    assert run(*where, "--json") == 1
    report = json.loads(capfd.readouterr().out)
    assert [each["check"] for each in report["findings"] if each["outcome"] == "fault"] == ["stop"]
    assert report["probe"]["model"] == NAME
    assert run("selfcheck", "--base-url", late, "--model", NAME, "--at-once", "many") == 2


def run(*arguments: str) -> Any:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code
