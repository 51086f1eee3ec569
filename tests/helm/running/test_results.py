"""Completions are cut as HELM's clients cut them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import textwrap
from typing import Any

import pytest

from assay.helm import GeneratedOutput, Request, Token, truncate_sequence
from assay.helm.running.results import result_of
from assay.types import Answer, Completion, CompletionToken


def output(*texts: str) -> GeneratedOutput:
    tokens = [Token(text, -0.5 - place) for place, text in enumerate(texts)]
    return GeneratedOutput("".join(texts), sum(token.logprob for token in tokens), tokens, {"reason": "length"})


def test_text_is_cut_anywhere_and_tokens_at_their_borders() -> None:
    cut = truncate_sequence(output("a", "b\nc", "\nd"), Request(max_tokens=9, stop_sequences=["\n"]))
    assert cut.text == "ab"
    assert [token.text for token in cut.tokens] == ["a", "b\nc"]
    assert cut.logprob == -0.5 + -1.5
    assert cut.finish_reason == {"reason": "length"}


def test_no_more_tokens_than_were_asked_for() -> None:
    cut = truncate_sequence(output("a", "b", "c"), Request(max_tokens=2))
    assert (cut.text, len(cut.tokens)) == ("ab", 2)


def test_what_needs_no_cut_keeps_its_log_probability() -> None:
    whole = GeneratedOutput("a", -3.0, [])
    assert truncate_sequence(whole, Request(max_tokens=2)) == whole
    assert truncate_sequence(whole, Request(max_tokens=2, stop_sequences=["b"])).logprob == 0  # as with HELM


def test_an_echoed_prompt_is_left_whole() -> None:
    echoed = output("a\n", "b")
    assert truncate_sequence(echoed, Request(max_tokens=0, echo_prompt=True, stop_sequences=["\n"])) == echoed


def test_the_result_has_what_helms_files_hold() -> None:
    completion = Completion(text="4</s>", finish_reason="stop", tokens=(CompletionToken("4", -1.0),), reasoning="2+2")
    answer = Answer(text="4</s>", latency=0.5, completions=(completion,), sent_at=1_700_000_000)
    result = result_of(answer, Request(max_tokens=5), "</s>")
    assert result.to_builtins() == {
        "success": True,
        "embedding": [],
        "completions": [
            {
                "text": "4",
                "logprob": -1.0,
                "tokens": [{"text": "4", "logprob": -1.0}],
                "finish_reason": {"reason": "stop"},
                "thinking": {"text": "2+2"},
            }
        ],
        "cached": False,
        "request_time": 0.5,
        "request_datetime": 1_700_000_000,
    }


THEIRS = textwrap.dedent(
    """
    import json, sys
    from helm.clients.client import truncate_sequence
    from helm.common.request import GeneratedOutput, Request, Token
    cut = []
    for case in json.load(sys.stdin):
        tokens = [Token(text, logprob) for text, logprob in case["tokens"]]
        given = GeneratedOutput(case["text"], case["logprob"], tokens)
        request = Request(model="a/b", max_tokens=case["max_tokens"], stop_sequences=case["stops"])
        got = truncate_sequence(given, request, print_warning=False)
        cut.append([got.text, got.logprob, [[token.text, token.logprob] for token in got.tokens]])
    print("RESULT" + json.dumps(cut))
    """
)


def test_random_completions_are_cut_as_helm_cuts_them() -> None:
    python = os.environ.get("ASSAY_HELM_PYTHON")
    if python is None:
        pytest.skip("ASSAY_HELM_PYTHON names no interpreter that has crfm-helm")
    rng = random.Random(7)
    pieces = ["a", " b", "\n", "\n\n", "b\nc", "</s>", ".", "", "é"]
    cases: list[dict[str, Any]] = []
    for _ in range(400):
        tokens = [(rng.choice(pieces), -rng.random()) for _ in range(rng.randrange(7))]
        stops = rng.sample(["\n", "\n\n", "</s>", ".", "b", "zz"], rng.randrange(4))
        text = "".join(text for text, _ in tokens)
        most = rng.randrange(1, 6)
        cases.append({"tokens": tokens, "text": text, "logprob": -rng.random(), "stops": stops, "max_tokens": most})
    child = subprocess.run([python, "-c", THEIRS], input=json.dumps(cases), capture_output=True, text=True, check=True)
    theirs = json.loads(child.stdout.partition("RESULT")[2])
    for case, (text, logprob, tokens) in zip(cases, theirs, strict=True):
        given = GeneratedOutput(case["text"], case["logprob"], [Token(*token) for token in case["tokens"]])
        ours = truncate_sequence(given, Request(max_tokens=case["max_tokens"], stop_sequences=case["stops"]))
        assert (ours.text, ours.logprob, [[token.text, token.logprob] for token in ours.tokens]) == (
            text,
            logprob,
            tokens,
        )
