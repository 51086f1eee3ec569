"""A prompt's own log-probabilities, read from a reply and summed as lm-eval sums them.

Four shapes are known. The completions protocol's: with ``echo`` the choice's ``logprobs`` hold parallel lists of
``tokens``, ``token_logprobs`` and ``top_logprobs`` for the prompt and, at the end, for the one token generated. And
vLLM's ``prompt_logprobs``: for each token of the prompt an object of candidates, the prompt's own token first. And
SGLang's and llama.cpp's own (:mod:`assay.client.native_endpoints`). The prompt's first token has none.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from assay.client.native_endpoints import GeneratedToken, MetaInfo  # noqa: TC001 - msgspec needs them
from assay.client.replies import (
    Choice,
    ParsedReply,
    ReplyBody,
    ReplyError,
    content_of,
    in_order,
    parsed_reply,
    read_reply,
    str_or_none,
    token_count,
)
from assay.types import Failure, FailureCause, TokenSpan

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.types import TextTail

Number = int | float


class Loglikelihood(NamedTuple):
    """lm-eval's result of one log-likelihood request."""

    logprob: Number
    """Sum of natural logarithms over the part scored."""
    is_greedy: bool
    """Whether each of its tokens was the likeliest."""


class Candidate(NamedTuple):
    """A candidate token at some position."""

    text: str
    logprob: Number
    id: int | None = None
    """Where the server names it."""


class EchoedPrompt:
    """The tokens of a prompt, as a server returned them.

    Args:
        parsed: what else the reply holds.
        logprobs: for each token, None where there is none.
        candidates: for each token the JSON of its ``top_logprobs`` or ``prompt_logprobs`` entry; read only when needed.
        read_texts: gives the tokens' texts and, last, that of the token which the model added; called only when needed.
    """

    def __init__(
        self,
        parsed: ParsedReply,
        logprobs: list[Number | None],
        candidates: list[msgspec.Raw],
        read_texts: Callable[[], list[str]],
    ) -> None:
        self.parsed = parsed
        self.logprobs = logprobs
        self._candidates = candidates
        self._read_texts = read_texts

    @cached_property
    def _all_texts(self) -> list[str]:
        texts = self._read_texts()
        if len(texts) != len(self.logprobs) + 1:
            raise _malformed(_UNEQUAL)
        return texts

    @property
    def texts(self) -> list[str]:
        """The tokens' texts.

        Raises:
            ReplyError: the reply does not hold one for each.
        """
        return self._all_texts[:-1]

    @property
    def generated(self) -> str:
        """The text of the token that the model added.

        Raises:
            ReplyError: as :attr:`texts`.
        """
        return self._all_texts[-1]

    def loglikelihood(self, scored: TokenSpan | TextTail) -> Loglikelihood:
        """Sum over `scored`.

        Raises:
            ReplyError: the tokens do not fit it, or one has no log-probability.
        """
        start = self.start_of(scored)
        values = [value for value in self.logprobs[start:] if value is not None]
        if len(values) < len(self.logprobs) - start:
            raise _malformed(
                "the reply has no log-probability of some token of the prompt"
                if start
                else "the reply has no log-probability of the first token, which has nothing before it; name the "
                "model's tokenizer (--tokenizer), so that a token can be put there"
            )
        is_greedy = all(value == self.likeliest(start + place).logprob for place, value in enumerate(values))
        return Loglikelihood(sum(values), is_greedy)

    def start_of(self, scored: TokenSpan | TextTail) -> int:
        """The first token of the part scored, which reaches to the prompt's end.

        Where only the text is known, a token that holds the end of the context and the beginning of the part belongs to
        the part.

        Raises:
            ReplyError: the prompt has another number of tokens than it should, or the part's text is not in them.
        """
        count = len(self.logprobs)
        if isinstance(scored, TokenSpan):
            if count != scored.stop:
                raise _malformed(
                    f"the reply has log-probabilities of {count} prompt tokens where {scored.stop} were asked about"
                )
            return scored.start
        texts, start, covered = self.texts, count, ""
        while start and len(covered) < len(scored.text):
            start -= 1
            covered = texts[start] + covered
        if not covered.endswith(scored.text):
            raise _malformed(
                f"the reply's last prompt tokens read {covered[-80:]!r}, not {scored.text[-80:]!r}; name the model's "
                "tokenizer (--tokenizer), so that they can be counted"
            )
        return start

    def likeliest(self, place: int) -> Candidate:
        """The likeliest token at a place.

        Raises:
            ReplyError: the reply names none.
        """
        return max(self.candidates(place), key=lambda candidate: candidate.logprob)

    def candidates(self, place: int) -> list[Candidate]:
        """The tokens listed at a place, in the reply's order.

        Raises:
            ReplyError: the reply names none.
        """
        try:
            candidates = _candidates_decoder.decode(self._candidates[place])
        except (msgspec.DecodeError, IndexError):
            raise _malformed(f"the reply names no likeliest token at place {place} of the prompt") from None
        if not candidates:
            raise _malformed(f"the reply names no likeliest token at place {place} of the prompt")
        return [_candidate(key, value) for key, value in candidates.items()]


def read_echo(body: bytes) -> EchoedPrompt:
    """The prompt's tokens in the body of a 200, and what else it says.

    Raises:
        ReplyError: it is no answer, or does not hold them.
    """
    try:
        reply = _decoder.decode(body)
        if reply.meta_info is not None:
            return _read_sglang(reply.meta_info, reply.text)
        if reply.tokens_evaluated is not None:
            return _read_llama_cpp(reply)
        parsed = parsed_reply(reply, body, "completions")
        choice = in_order(reply.choices or ())[0]
        # vLLM adds prompt_logprobs to an echo; lm-eval reads the protocol's own lists.
        if choice.logprobs is None and choice.prompt_logprobs is not None:
            return _read_prompt_logprobs(parsed, choice, choice.prompt_logprobs)
        return _read_legacy(parsed, choice.logprobs)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        read_reply(body, "completions")  # says what is wrong with the rest, if anything is
        raise _malformed(f"the reply's log-probabilities are not of the protocol ({error})") from None


def unanswerable(scored: TokenSpan | TextTail) -> Failure | None:
    """The failure of a request that cannot be scored because nothing precedes the scored part; else None."""
    if not isinstance(scored, TokenSpan) or scored.start > 0:
        return None
    return Failure(
        cause=FailureCause.CONTEXT_TOO_LONG,
        message=f"of {scored.stop} prompt tokens none is left as context; the context is blank, or the "
        "continuation alone fills max_length",
        attempts=0,
    )


class _PromptCandidate(msgspec.Struct):
    """A candidate in vLLM's ``prompt_logprobs``."""

    logprob: Number
    decoded_token: str | None = None


class _Logprobs(msgspec.Struct):
    token_logprobs: list[Number | None] | None = None
    top_logprobs: list[msgspec.Raw] | None = None
    tokens: msgspec.Raw = msgspec.Raw(b"[]")
    content: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """The list of tokens in chat's shape."""


class _Choice(Choice):
    logprobs: _Logprobs | None = None
    prompt_logprobs: list[msgspec.Raw] | None = None


class _Reply(ReplyBody):
    choices: tuple[_Choice, ...] | None = None
    meta_info: MetaInfo | None = None
    """SGLang's."""
    text: Any = None
    tokens_evaluated: int | None = None
    """llama.cpp's."""
    completion_probabilities: list[GeneratedToken] | None = None
    content: Any = None


_decoder = msgspec.json.Decoder(_Reply)
_texts_decoder = msgspec.json.Decoder(list[str])
_candidates_decoder = msgspec.json.Decoder(dict[str, Number | _PromptCandidate])
_prompt_candidates_decoder = msgspec.json.Decoder(dict[str, _PromptCandidate] | None)


_UNEQUAL = "the reply's tokens, token_logprobs and top_logprobs are missing, empty or of unequal length"


def _read_legacy(parsed: ParsedReply, logprobs: _Logprobs | None) -> EchoedPrompt:
    if logprobs is None:
        raise _malformed("the reply holds no log-probabilities")
    if logprobs.token_logprobs is None:
        shape = "" if logprobs.content is msgspec.UNSET else " (they have the shape of chat completions')"
        raise _malformed(f"the reply holds log-probabilities of the generated text only{shape}")
    values, candidates, tokens = logprobs.token_logprobs, logprobs.top_logprobs, logprobs.tokens
    if candidates is None or not len(values) == len(candidates) > 0:
        raise _malformed(_UNEQUAL)

    def read_texts() -> list[str]:
        try:
            return _texts_decoder.decode(tokens)
        except (msgspec.DecodeError, ValueError) as error:
            raise _malformed(f"the reply's tokens are not of the protocol ({error})") from None

    # The last of each is the generated token's.
    del values[-1], candidates[-1]
    return EchoedPrompt(parsed, values, candidates, read_texts)


def _read_prompt_logprobs(parsed: ParsedReply, choice: _Choice, entries: list[msgspec.Raw]) -> EchoedPrompt:
    own = [next(iter((_prompt_candidates_decoder.decode(entry) or {}).values()), None) for entry in entries]
    values = [None if token is None else token.logprob for token in own]
    texts = ["" if token is None else token.decoded_token or "" for token in own]
    return EchoedPrompt(parsed, values, entries, lambda: [*texts, content_of(choice, "completions").text or ""])


def _read_sglang(said: MetaInfo, generated: Any) -> EchoedPrompt:
    tokens = said.input_token_logprobs
    if not 0 < len(tokens) == len(said.input_top_logprobs):
        raise _malformed("the reply's input_token_logprobs and input_top_logprobs are empty or of unequal length")
    parsed = ParsedReply(
        text=str_or_none(generated),
        finish_reason=None,
        reasoning=None,
        prompt_tokens=token_count(said.prompt_tokens),
        completion_tokens=token_count(said.completion_tokens),
        model=None,
    )
    texts = [text or "" for _, _, text in tokens]
    candidates = [msgspec.Raw(msgspec.json.encode(entry)) for entry in said.candidates()]
    return EchoedPrompt(parsed, [value for value, _, _ in tokens], candidates, lambda: [*texts, parsed.text or ""])


def _read_llama_cpp(reply: _Reply) -> EchoedPrompt:
    """The prompt and the one token after it, whose log-probability alone is known."""
    before = reply.tokens_evaluated or 0
    if not reply.completion_probabilities:
        raise _malformed(
            "the reply has no log-probability of the token after the prompt; llama.cpp gives none of half a character"
        )
    (token, *_), text = reply.completion_probabilities, str_or_none(reply.content)
    parsed = ParsedReply(
        text=text,
        finish_reason=None,
        reasoning=None,
        prompt_tokens=token_count(before),
        completion_tokens=1,
        model=str_or_none(reply.model),
    )
    likeliest = {each.token: each.logprob for each in token.top_logprobs}
    candidates = [msgspec.Raw(b"{}")] * before + [msgspec.Raw(msgspec.json.encode(likeliest))]
    texts = [""] * before + [token.token, text or ""]
    return EchoedPrompt(parsed, [None] * before + [token.logprob], candidates, lambda: texts)


def _candidate(key: str, value: Number | _PromptCandidate) -> Candidate:
    if isinstance(value, _PromptCandidate):
        return Candidate(value.decoded_token or "", value.logprob, int(key) if key.isdecimal() else None)
    return Candidate(key, value)


def _malformed(message: str) -> ReplyError:
    return ReplyError(FailureCause.UNREADABLE_REPLY, message)
