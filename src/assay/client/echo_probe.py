"""Checks before a run whether a server returns the log-probabilities of a prompt's own tokens, and correctly.

Several servers accept the request and answer something else: some ignore ``echo`` and return only the generated token's
log-probability, some shift the prompt's by one position. A run would then report chance or nonsense. Two requests
detect this. The first prompt must come back whole, token for token, with no log-probability for its first token. The
second prompt is the first without its last word: the token that the model generates must be the one that the first
reply calls likeliest at that position. Shifted log-probabilities name the token after it. Both replies come from the
same model, so the check works however well or badly the model predicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from assay.client.logprobs import EchoedPrompt, read_echo
from assay.client.replies import ReplyError
from assay.errors import ServerRefusedError, UnsupportedTaskError
from assay.types import Failure, FailureCause, LogprobSource, TextTail, TokenSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

_AS_ASKED = {
    LogprobSource.ECHO: "to echo a prompt with its log-probabilities",
    LogprobSource.PROMPT_LOGPROBS: "for prompt_logprobs",
    LogprobSource.SGLANG: "at SGLang's /generate",
    LogprobSource.LLAMA_CPP: "at llama.cpp's /completion",
}
_NATIVE = frozenset({LogprobSource.SGLANG, LogprobSource.LLAMA_CPP})
_REFUSALS = frozenset({FailureCause.BAD_REQUEST, FailureCause.NOT_FOUND, FailureCause.CONTEXT_TOO_LONG})
"""How a server fails that does not know a parameter or an endpoint."""


class EchoTrial(NamedTuple):
    """Two requests in the same form as the run's."""

    text: str
    """The text of `whole`'s prompt."""
    whole: bytes
    scored: TokenSpan | TextTail
    """The prompt's last word."""
    beginning: bytes
    """A body whose prompt is that of `whole` without its last word."""


class Exchange(Protocol):
    """Asks a server, with retries."""

    address: str
    """The server's root, for messages."""

    async def exchange(self, payload: bytes, read: Callable[[bytes], T]) -> T | Failure:
        """Send a request, and return its reply as `read` parses it, or the failure."""


async def find_logprob_source(server: Exchange, trial: Callable[[LogprobSource], EchoTrial | None]) -> LogprobSource:
    """How `server` returns a prompt's log-probabilities; by ``echo``, as lm-eval asks, if it can.

    Args:
        server: the server.
        trial: builds the requests for one source; None if that source needs token ids, and there is no tokenizer.

    Raises:
        UnsupportedTaskError: it returns none, or wrong ones; the message says what it did.
        ServerRefusedError: it gave no answer at all.
        ServerUnreachableError: it has been down for too long.
    """
    faults = {}
    for source in LogprobSource:
        if (requests := trial(source)) is None:
            faults[source] = "it cannot be tried without the model's tokenizer (--tokenizer)"
            continue
        try:
            fault = await fault_of_logprobs(server, requests)
        except ServerRefusedError:
            if source not in _NATIVE:
                raise
            fault = "it has no such endpoint"
        if fault is None:
            return source
        faults[source] = fault
    tried = "; ".join(f"asked {_AS_ASKED[source]}, {fault}" for source, fault in faults.items())
    raise UnsupportedTaskError(
        f"the server at {server.address} cannot score by log-likelihood: {tried}; choose a generative task or another "
        "server"
    )


def common_source(sources: Mapping[str, LogprobSource]) -> LogprobSource:
    """The source of log-probabilities that all servers share.

    Args:
        sources: each server's source, by its address.

    Raises:
        UnsupportedTaskError: the servers differ.
    """
    if len(set(sources.values())) > 1:
        ways = ", ".join(f"{address} by {source}" for address, source in sources.items())
        raise UnsupportedTaskError(f"the endpoints give a prompt's log-probabilities in different ways: {ways}")
    return next(iter(sources.values()))


async def fault_of_logprobs(server: Exchange, trial: EchoTrial) -> str | None:
    """What is wrong with the server's log-probabilities, as a clause; None if they are right.

    Raises:
        ServerRefusedError: it gave no answer at all.
        ServerUnreachableError: it has been down for too long.
    """
    try:
        whole = await _echo(server, trial.whole)
        whole.loglikelihood(trial.scored)
        _check_structure(whole, trial.text)
        likeliest = whole.likeliest(whole.start_of(trial.scored)).text
        generated = (await _echo(server, trial.beginning)).generated
    except ReplyError as error:
        return str(error)
    if likeliest.strip() == generated.strip():
        return None
    return (
        f"the reply's log-probabilities belong to other tokens than the prompt's: they call {likeliest!r} likeliest "
        f"where the model generates {generated!r}"
    )


def _check_structure(prompt: EchoedPrompt, text: str) -> None:
    echoed, expected = "".join(prompt.texts), _letters(text)
    # prompt_logprobs do not name the first token.
    after_first = _letters("".join(prompt.texts[1:]))
    is_all_but_first = expected.endswith(after_first) and 2 * len(after_first) > len(expected)
    if not is_all_but_first and not _letters(echoed).endswith(expected):
        raise ReplyError(FailureCause.UNREADABLE_REPLY, f"the reply's tokens are not the prompt's but {echoed[:80]!r}")
    if prompt.logprobs[0] is not None:
        raise ReplyError(
            FailureCause.UNREADABLE_REPLY, "the reply has a log-probability of the first token, before which is nothing"
        )


def _letters(text: str) -> str:
    """The letters alone: vocabularies have their own signs for spaces."""
    return "".join(filter(str.isalpha, text))


async def _echo(server: Exchange, payload: bytes) -> EchoedPrompt:
    reply = await server.exchange(payload, read_echo)
    if isinstance(reply, EchoedPrompt):
        return reply
    if reply.cause in (FailureCause.MALFORMED_REPLY, FailureCause.UNREADABLE_REPLY):
        raise ReplyError(reply.cause, reply.message)
    if reply.cause in _REFUSALS:
        raise ReplyError(reply.cause, f"it refused ({reply.message})")
    raise ServerRefusedError(
        f"the server at {server.address} did not answer when asked for log-probabilities: {reply.message}"
    )
