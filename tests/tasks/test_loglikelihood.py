"""Log-likelihood requests and values beside lm-eval's own client, which asks the same server."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from assay.client.logprobs import read_echo
from assay.errors import UnsupportedTaskError
from assay.tasks.huggingface_tokenizer import HuggingFaceTokenizer
from assay.tasks.loglikelihood import LoglikelihoodBodies, lm_eval_response, needs_loglikelihood, refuse_unscorable
from assay.types import Answer, LogprobSource, ModelSpec, TextTail
from tests.servers.echoing import ImaginaryModel
from tests.servers.scripted import ScriptedServer
from tests.small_tokenizer import write_small_tokenizer
from tests.tasks.lm_eval_client import lm_eval_client

MAX_LENGTH = 40
"""Small, so that contexts are cut and texts take several windows."""

PAIRS = (
    ("The answer is", " (A)"),
    ("The answer is ", "(B)"),
    ("The answer is \n\n", " 12"),
    ("The answer is (", "A)."),
    ("", " (A)"),
    ("", "The river"),
    ("Question: what is the name of the river? " * 3, "the river has no name."),
    ("日本語のテキスト", "です。"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_small_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def tokenizer(folder: str) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(folder)


@pytest.fixture(scope="module")
def model(tokenizer: HuggingFaceTokenizer) -> ImaginaryModel:
    return ImaginaryModel(tokenizer)


@pytest.fixture
def server(model: ImaginaryModel) -> Iterator[ScriptedServer]:
    with ScriptedServer(answer=model.vllm) as running:
        yield running


def spec(**settings: Any) -> ModelSpec:
    fields: dict[str, Any] = {
        "base_url": "http://server",
        "model": "imaginary",
        "endpoint": "completions",
        "max_length": MAX_LENGTH,
    }
    return ModelSpec(**fields | settings)


def instance(kind: str, *args: str) -> Any:
    return SimpleNamespace(request_type=kind, args=args)


def responses(
    model: ImaginaryModel, bodies: LoglikelihoodBodies, instances: list[Any]
) -> tuple[list[Any], list[bytes]]:
    """What Assay makes of the instances, and the bodies that it takes."""
    values, sent = [], []
    for each in instances:
        answers = []
        for body, scored in bodies.of(each):
            sent.append(body)
            reply = json.dumps(model.vllm(json.loads(body))).encode()
            logprob, is_greedy = read_echo(reply).loglikelihood(scored)
            answers.append(Answer(text=None, logprob=logprob, is_greedy=is_greedy))
        values.append(lm_eval_response(each.request_type, answers))
    return values, sent


@pytest.mark.parametrize("tokenized", [True, False])
@pytest.mark.parametrize("max_length", [MAX_LENGTH, 400])
def test_pairs_are_asked_and_valued_as_by_lm_eval(
    model: ImaginaryModel,
    tokenizer: HuggingFaceTokenizer,
    folder: str,
    server: ScriptedServer,
    tokenized: bool,
    max_length: int,
) -> None:
    instances = [instance("loglikelihood", *pair) for pair in PAIRS]
    if not tokenized and max_length == MAX_LENGTH:
        # Text cut in the middle may be split otherwise by the server: lm-eval then sums over the wrong tokens.
        instances = [each for each in instances if len(each.args[0]) < 60]
    client = lm_eval_client(server.url, folder, model="imaginary", max_length=max_length, tokenized_requests=tokenized)
    expected = client.loglikelihood(instances, disable_tqdm=True)
    bodies = LoglikelihoodBodies(
        spec(max_length=max_length, tokenized_requests=tokenized), tokenizer, LogprobSource.ECHO
    )
    got, sent = responses(model, bodies, instances)
    assert got == expected
    assert Counter(sent) == Counter(request.raw for request in server.requests)


@pytest.mark.parametrize("tokens", [0, 1, 37, 38, 39, 40, 76, 77, 200])
def test_texts_are_asked_in_windows_and_valued_as_by_lm_eval(
    model: ImaginaryModel, tokenizer: HuggingFaceTokenizer, folder: str, server: ScriptedServer, tokens: int
) -> None:
    letters = random.Random(tokens)
    text = "".join(letters.choice("0123456789") for _ in range(tokens))
    assert len(tokenizer.encode(text)) == pytest.approx(tokens, abs=3)
    instances = [instance("loglikelihood_rolling", text)]
    client = lm_eval_client(server.url, folder, model="imaginary", max_length=MAX_LENGTH)
    expected = client.loglikelihood_rolling(instances, disable_tqdm=True)
    got, sent = responses(model, LoglikelihoodBodies(spec(), tokenizer, LogprobSource.ECHO), instances)
    assert got == expected
    assert [type(value) for value in got] == [type(value) for value in expected]
    assert Counter(sent) == Counter(request.raw for request in server.requests)


def test_prompt_logprobs_give_the_same_values(model: ImaginaryModel, tokenizer: HuggingFaceTokenizer) -> None:
    instances = [instance("loglikelihood", *pair) for pair in PAIRS]
    by_echo, by_prompt_logprobs = (
        responses(model, LoglikelihoodBodies(spec(), tokenizer, source), instances)[0]
        for source in (LogprobSource.ECHO, LogprobSource.PROMPT_LOGPROBS)
    )
    assert by_prompt_logprobs == by_echo


def test_without_a_tokenizer_the_servers_tokens_give_the_same_values(
    model: ImaginaryModel, tokenizer: HuggingFaceTokenizer
) -> None:
    # Where no token spans the seam between context and continuation.
    instances = [instance("loglikelihood", *pair) for pair in PAIRS[:3]]
    theirs = LoglikelihoodBodies(spec(), None, LogprobSource.ECHO)
    ours = LoglikelihoodBodies(spec(), tokenizer, LogprobSource.ECHO)
    assert responses(model, theirs, instances)[0] == responses(model, ours, instances)[0]


def test_without_a_tokenizer_blanks_at_the_end_of_the_context_are_scored_with_the_continuation() -> None:
    bodies = LoglikelihoodBodies(spec(), None, LogprobSource.ECHO)
    ((body, scored),) = bodies.of(instance("loglikelihood", "The answer is \n", "12"))
    assert json.loads(body)["prompt"] == "The answer is \n12"
    assert scored == TextTail(" \n12")


def task(output_type: str) -> Any:
    return SimpleNamespace(OUTPUT_TYPE=output_type)


def test_log_likelihoods_are_needed_by_all_but_generative_tasks() -> None:
    assert not needs_loglikelihood({"a": task("generate_until")})
    for kind in ("loglikelihood", "loglikelihood_rolling", "multiple_choice"):
        assert needs_loglikelihood({"a": task("generate_until"), "b": task(kind)})


def test_chat_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedTaskError, match=r"'arc'.*chat completions cannot give.*--completions"):
        refuse_unscorable({"gsm8k": task("generate_until"), "arc": task("multiple_choice")}, spec(endpoint="chat"), ())


@pytest.mark.parametrize(
    ("asked_for", "refused", "twin"),
    [
        ("arc_challenge", "arc_challenge", "arc_challenge_chat"),
        ("mmlu", "mmlu_anatomy", "mmlu_generative"),
        ("mmlu_anatomy", "mmlu_anatomy", "mmlu_anatomy_generative"),
    ],
)
def test_chat_is_shown_the_generative_twin(asked_for: str, refused: str, twin: str) -> None:
    with pytest.raises(UnsupportedTaskError, match=f"or ask for {twin}, its generative variant"):
        refuse_unscorable({refused: task("multiple_choice")}, spec(endpoint="chat"), (asked_for,))


def test_windows_need_a_tokenizer() -> None:
    tasks = {"wikitext": task("loglikelihood_rolling")}
    with pytest.raises(UnsupportedTaskError, match=r"'wikitext'.*--tokenizer"):
        refuse_unscorable(tasks, spec(), ())
    refuse_unscorable(tasks, spec(tokenizer="some/where"), ())


def test_choices_need_none() -> None:
    refuse_unscorable({"arc": task("multiple_choice"), "lambada": task("loglikelihood")}, spec(), ())
