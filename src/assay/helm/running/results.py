"""Converts answers to HELM's results, cut to the request's limits as HELM's clients cut them."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec

from assay.helm.adaptation import GeneratedOutput, RequestResult, Token

if TYPE_CHECKING:
    from assay.helm.adaptation import Request
    from assay.types import Answer, Completion


def result_of(answer: Answer, request: Request, end_of_text: str | None) -> RequestResult:
    """The result of a request.

    Args:
        answer: the answer with all its completions.
        request: says where completions end.
        end_of_text: the text of the end-of-sequence token, if answers may contain it.
    """
    outputs = [truncate_sequence(_output(completion), request, end_of_text) for completion in answer.completions]
    return RequestResult(
        success=True,
        embedding=[],
        completions=outputs,
        cached=False,
        request_time=answer.latency,
        request_datetime=answer.sent_at,
    )


def truncate_sequence(
    sequence: GeneratedOutput,
    request: Request,
    end_of_text_token: str | None = None,
    print_warning: bool = True,  # noqa: ARG001 - part of HELM's interface
) -> GeneratedOutput:
    """Cut a completion before the first stop sequence and to the largest number of tokens.

    HELM's clients apply the function of this name to every completion. The text is cut exactly; the list of tokens is
    cut before the first token that begins with the stop sequence. HELM drops the finish reason; here it is kept.

    Args:
        sequence: The completion.
        request: Says where the completion ends; an echoed prompt is never cut.
        end_of_text_token: The text of the end-of-sequence token, if answers may contain it.
        print_warning: Not used.
    """
    if request.echo_prompt:
        return sequence
    stops = [*request.stop_sequences, *([end_of_text_token] if end_of_text_token else [])]
    text, tokens = sequence.text, sequence.tokens
    for stop in stops:
        start = text.find(stop)
        text = text if start < 0 else text[:start]
        tokens = _before(tokens, stop)
    if len(tokens) > request.max_tokens:
        tokens = tokens[: request.max_tokens]
        text = "".join(token.text for token in tokens)
    elif not stops:
        return sequence
    return msgspec.structs.replace(sequence, text=text, logprob=sum(token.logprob for token in tokens), tokens=tokens)


def _before(tokens: list[Token], stop: str) -> list[Token]:
    return list(takewhile(lambda token: not token.text.startswith(stop), tokens))


def _output(completion: Completion) -> GeneratedOutput:
    tokens = [Token(token.text, token.logprob) for token in completion.tokens]
    return GeneratedOutput(
        text=completion.text,
        logprob=sum(token.logprob for token in tokens),
        tokens=tokens,
        finish_reason=None if completion.finish_reason is None else {"reason": completion.finish_reason},
        thinking=None if completion.reasoning is None else {"text": completion.reasoning},
    )
