"""Checks a run's servers before the run: are they up, do they serve the same model, do they give the same answers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from assay.client.refusals import SHORT_QUESTION, refusal_words, refuses_key
from assay.client.replies import read_reply
from assay.client.retry import Fault
from assay.client.server_info import ServedModel, ServerInfo, answers_to, check_model_served, served_as, server_info
from assay.errors import ModelNotServedError, ReplicasDifferError, ServerRefusedError, ServerUnreachableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.client.endpoint import Endpoint
    from assay.client.replies import ParsedReply
    from assay.types import ModelSpec

AGREEMENT_PROMPTS = (
    SHORT_QUESTION,
    "Name the capital of France in one word.",
    "Count from 1 to 8, separated by single spaces.",
    "Spell the word 'bridge' backwards.",
)
"""Short prompts whose answers at temperature 0 replicas should agree on."""
_TOKENS = 16
_KEY_TIMEOUT = 5.0
_ANSWER_TIMEOUT = 60.0
"""Seconds; a prompt without an answer by then counts as unanswered."""


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How one endpoint's answers to the agreement prompts compare with the others'."""

    answered: int
    differing: int
    """Answers that are not the majority's. Without a majority, all differ."""


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the checks."""

    servers: dict[str, ServerInfo]
    """The servers that are up, by address; at least one."""
    urls: dict[str, str] = {}
    """The URL that requests go to, for each of those."""
    absent: dict[str, str] = {}
    """Why each of the other servers is unreachable, by address."""
    agreement: dict[str, Agreement] = {}
    """By address; empty if there was nothing to compare."""
    open_proxies: dict[str, str] = {}
    """By address: the proxy that can read requests because they are not encrypted."""

    @property
    def first(self) -> ServerInfo:
        """The first server that is up."""
        return next(iter(self.servers.values()))

    @property
    def remarks(self) -> list[str]:
        """Warnings for the user, a line each."""
        proxied = [
            f"{address} is asked through the proxy {proxy}, which sees prompts, answers and key: the address begins "
            "with http://; to ask it directly, name its host in NO_PROXY"
            for address, proxy in self.open_proxies.items()
        ]
        return proxied + [
            f"{address} answered {agreement.differing} of {agreement.answered} short prompts at temperature 0 unlike "
            "the other endpoints: batching in low precision can do that, another model, quantisation or chat template "
            "does; compare a run of it alone with a run of another before you trust the scores"
            for address, agreement in self.agreement.items()
            if agreement.differing
        ]


async def run_preflight(endpoints: Sequence[Endpoint], spec: ModelSpec) -> Preflight:
    """Ask every endpoint for its models and, if there are several, compare their answers to short prompts.

    Args:
        endpoints: the run's endpoints, open.
        spec: the model to ask for.

    Raises:
        ServerUnreachableError: none is up.
        ServerRefusedError: all refuse the key.
        ModelNotServedError: none serves the model.
        ReplicasDifferError: they serve different models, or different context lengths.
    """
    outcomes = await asyncio.gather(*(server_info(one) for one in endpoints), return_exceptions=True)
    servers: dict[str, ServerInfo] = {}
    absent: dict[str, str] = {}
    for endpoint, outcome in zip(endpoints, outcomes, strict=True):
        if isinstance(outcome, ServerInfo):
            servers[endpoint.address] = outcome
        elif isinstance(outcome, ServerUnreachableError):
            absent[endpoint.address] = str(outcome)
        else:
            raise outcome
    if not servers:
        others = f"; nor is any of {len(absent) - 1} other endpoints there" if len(absent) > 1 else ""
        raise ServerUnreachableError(next(iter(absent.values())) + others)
    refuse_unlike(list(servers.values()), spec.model)
    present = [endpoint for endpoint in endpoints if endpoint.address in servers]
    await _refuse_bad_key(present, spec)
    agreement = await _compare_answers(present, spec) if len(present) > 1 else {}
    open_proxies = {endpoint.address: endpoint.open_proxy for endpoint in endpoints if endpoint.open_proxy}
    urls = {endpoint.address: endpoint.url for endpoint in present}
    return Preflight(servers=servers, urls=urls, absent=absent, agreement=agreement, open_proxies=open_proxies)


async def _refuse_bad_key(endpoints: Sequence[Endpoint], spec: ModelSpec) -> None:
    """Make sure that at least one server accepts the key.

    Many servers check the key only on requests that generate. So each gets a request without a prompt: the server
    checks the key first and generates nothing.
    """
    body = json.dumps({"model": spec.model, "max_tokens": 1}).encode()

    async def refusal(endpoint: Endpoint) -> Fault | None:
        try:
            async with asyncio.timeout(_KEY_TIMEOUT):
                parsed = await endpoint.attempt(body, lambda _: None)
        except TimeoutError:
            return None
        return parsed if parsed is not None and refuses_key(parsed) else None

    refusals = await asyncio.gather(*map(refusal, endpoints))
    first = refusals[0]
    if first is not None and all(refusals):
        who = "each endpoint" if len(endpoints) > 1 else endpoints[0].address
        raise ServerRefusedError(refusal_words(who, first, spec))


async def why_not_readmitted(endpoint: Endpoint, preflight: Preflight, model: str) -> str | None:
    """Why an endpoint that was down may not come back to the run; None if it may."""
    try:
        refuse_unlike([*preflight.servers.values(), await server_info(endpoint)], model)
    except (ReplicasDifferError, ModelNotServedError, ServerUnreachableError) as error:
        return str(error)
    return None


def refuse_unlike(servers: Sequence[ServerInfo], model: str) -> None:
    """Make sure that all servers serve `model`, and the same one, as far as they say.

    Raises:
        ModelNotServedError: none serves it.
        ReplicasDifferError: only some do, or what they serve differs.
    """
    found = {info.url: served_as(info, model) for info in servers if info.models}
    lacking = [info for info in servers if info.models and found[info.url] is None]
    having = {url: served for url, served in found.items() if served is not None}
    if lacking and not having:
        check_model_served(lacking[0], model)
    if lacking:
        url = next(iter(having))
        others = ", ".join(repr(served.id) for served in lacking[0].models[:3])
        raise ReplicasDifferError(
            f"{url} serves {model!r}, but {lacking[0].url} serves {others}; endpoints of one run must be replicas"
        )
    for what, values in (("the model", _names(having, model)), ("a context length of", _lengths(having))):
        if difference := _difference(values):
            (url, value), (other_url, other) = difference
            raise ReplicasDifferError(
                f"{url} serves {what} {value!r}, but {other_url} {other!r}; endpoints of one run must be replicas"
            )


def _difference(values: Mapping[str, object]) -> list[tuple[str, object]] | None:
    """The first two entries whose values differ, if there are any."""
    first = next(iter(values.items()), None)
    other = next((item for item in values.items() if first is not None and item[1] != first[1]), None)
    return None if first is None or other is None else [first, other]


def _names(served: Mapping[str, ServedModel], model: str) -> dict[str, str]:
    """By address: `model`, or the name of the only model of a server that accepts any name."""
    return {url: model if answers_to(one, model) else one.id for url, one in served.items()}


def _lengths(served: Mapping[str, ServedModel]) -> dict[str, int]:
    return {url: one.max_model_len for url, one in served.items() if one.max_model_len is not None}


async def _compare_answers(endpoints: Sequence[Endpoint], spec: ModelSpec) -> dict[str, Agreement]:
    answers = await asyncio.gather(*(_answers(endpoint, spec) for endpoint in endpoints))
    by_prompt = [[given for given in parsed if given is not None] for parsed in zip(*answers, strict=True)]
    usual = [_majority(parsed) for parsed in by_prompt]
    compared = [len(parsed) > 1 for parsed in by_prompt]
    return {
        endpoint.address: Agreement(
            answered=sum(one is not None for one in parsed),
            differing=sum(
                one is not None and is_compared and one != expected
                for one, expected, is_compared in zip(parsed, usual, compared, strict=True)
            ),
        )
        for endpoint, parsed in zip(endpoints, answers, strict=True)
    }


async def _answers(endpoint: Endpoint, spec: ModelSpec) -> list[str | None]:
    """One endpoint's answers to the agreement prompts; None where there is no answer."""

    async def answer(prompt: str) -> str | None:
        parsed = await ask_shortly(endpoint, spec, prompt)
        return None if parsed is None or isinstance(parsed, Fault) else f"{parsed.reasoning or ''}\n{parsed.text or ''}"

    return await asyncio.gather(*(answer(prompt) for prompt in AGREEMENT_PROMPTS))


async def ask_shortly(endpoint: Endpoint, spec: ModelSpec, prompt: str = SHORT_QUESTION) -> ParsedReply | Fault | None:
    """Ask an endpoint a short prompt at temperature 0; None if the answer takes longer than a minute."""
    try:
        async with asyncio.timeout(_ANSWER_TIMEOUT):
            return await endpoint.attempt(_body(prompt, spec), lambda body: read_reply(body, spec.endpoint))
    except TimeoutError:
        return None


def _body(prompt: str, spec: ModelSpec) -> bytes:
    asked = {"messages": [{"role": "user", "content": prompt}]} if spec.endpoint == "chat" else {"prompt": prompt}
    settings = {"model": spec.model, "max_tokens": _TOKENS, "temperature": 0, "seed": spec.seed}
    return json.dumps({**asked, **settings}).encode()


def _majority(answers: Sequence[str]) -> str | None:
    """The answer that more than half give; None if there is none."""
    if not answers:
        return None
    answer, count = Counter(answers).most_common(1)[0]
    return answer if 2 * count > len(answers) else None
