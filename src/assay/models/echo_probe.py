"""Finds out, before a run, whether a server gives the log-probabilities of a prompt's own tokens, and gives them right.

Several servers take the request and answer something else: some ignore ``echo`` and tell the generated token's
log-probability only, some shift the prompt's by one place. A run would then report chance or nonsense. Two questions
tell them apart. The first prompt must come back whole, token for token, its first without a log-probability. The second
is its beginning: what the model generates after that must be what the first reply calls likeliest at the next place.
Shifted log-probabilities name there what follows one token later. Both sides come from the same model, so the test
holds however well or badly the model predicts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from assay.errors import ServerRefusedError, UnsupportedTaskError
from assay.models.logprobs import EchoedPrompt, read_echo
from assay.models.wire import ReplyError
from assay.types import Failure, FailureCause, LogprobSource, TextTail, TokenSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

_REFUSALS = frozenset({FailureCause.BAD_REQUEST, FailureCause.NOT_FOUND, FailureCause.CONTEXT_TOO_LONG})
"""What a server that does not know a parameter or an endpoint answers."""


class EchoTrial(NamedTuple):
    """Questions put in the same form as the run's."""

    text: str
    """What the prompt of `whole` reads."""
    whole: bytes
    scored: TokenSpan | TextTail
    """The prompt's last word."""
    beginning: bytes
    """A body whose prompt is that of `whole` without its last word."""


class Exchange(Protocol):
    """Asks a server, with all patience, and reads the reply."""

    address: str
    """The server's root, for messages."""

    async def exchange(self, payload: bytes, read: Callable[[bytes], T]) -> T | Failure:
        """What `read` makes of the reply's body, or why there is no reply."""


async def find_logprob_source(server: Exchange, trial: Callable[[LogprobSource], EchoTrial]) -> LogprobSource:
    """The way in which `server` gives a prompt's log-probabilities; ``echo``, lm-eval's way, if it can.

    Args:
        server: the server.
        trial: writes the questions for one way.

    Raises:
        UnsupportedTaskError: it gives none, or wrong ones; the message says what it did.
        ServerRefusedError: it gave no answer at all.
        ServerUnreachableError: it has been down for too long.
    """
    faults = {}
    for source in LogprobSource:
        fault = await _fault(server, trial(source))
        if fault is None:
            return source
        faults[source] = fault
    raise UnsupportedTaskError(
        f"the server at {server.address} cannot score by log-likelihood: asked to echo a prompt with its "
        f"log-probabilities, {faults[LogprobSource.ECHO]}; asked for prompt_logprobs, "
        f"{faults[LogprobSource.PROMPT_LOGPROBS]}; choose a generative task or another server"
    )


def common_source(sources: Mapping[str, LogprobSource]) -> LogprobSource:
    """The one way in which all servers give log-probabilities.

    Args:
        sources: each server's way, by its address.

    Raises:
        UnsupportedTaskError: there is no such way.
    """
    if len(set(sources.values())) > 1:
        ways = ", ".join(f"{address} by {source}" for address, source in sources.items())
        raise UnsupportedTaskError(f"the endpoints give a prompt's log-probabilities in different ways: {ways}")
    return next(iter(sources.values()))


async def _fault(server: Exchange, trial: EchoTrial) -> str | None:
    """What is wrong with the server's log-probabilities, as a clause; None if they are right."""
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
    """Without blanks, for which vocabularies have signs of their own, and punctuation."""
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
