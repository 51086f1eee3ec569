"""A given text is read as the model sees it, by whatever way its server offers; what a server lacks is said first."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any, Literal

import pytest

from assay.client.replies import ReplyError
from assay.errors import UnsupportedTaskError
from assay.identity.forced_replies import read_native_token, read_whole
from assay.identity.generating import Generation, read_generation
from assay.identity.positions import Position, common_names, position_of
from assay.identity.reading import Prompt, Reading, Way, open_reader
from assay.types import Failure, ModelSpec
from tests.servers.planted import NAME, PlantedServer, SmallModel, encode, logprobs_after
from tests.servers.scripted import ScriptedServer, reply_with

PROMPT = " ba be bi bo bu"
CHAT = ({"role": "user", "content": PROMPT},)
LACKS = {
    Way.PROMPT_LOGPROBS: frozenset[str](),
    Way.ECHO: frozenset({"prompt_logprobs"}),
    Way.ONE_BY_ONE: frozenset({"prompt_logprobs", "echo"}),
    Way.GREEDY_CHAT: frozenset({"prompt_logprobs", "echo", "tokenize"}),
}


def read_own(
    model: SmallModel, prompt: Prompt, endpoint: Literal["chat", "completions"], given: tuple[Position, ...] = ()
) -> tuple[Reading | Failure, Generation]:
    async def read(url: str) -> tuple[Reading | Failure, Generation]:
        async with open_reader(ModelSpec(base_url=url, model=NAME, endpoint=endpoint)) as reader:
            generated = await reader.generate(prompt, 6)
            assert isinstance(generated, Generation)
            return await reader.read(prompt, given or generated.positions), generated

    with PlantedServer(model) as server:
        return asyncio.run(read(server.url))


@pytest.mark.parametrize("way", LACKS)
@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_a_reading_is_what_the_model_says(way: Way, endpoint: Literal["chat", "completions"]) -> None:
    if way is Way.GREEDY_CHAT and endpoint == "completions":
        way = Way.ONE_BY_ONE  # a text without ids
        lacks = LACKS[Way.GREEDY_CHAT]
    else:
        lacks = LACKS[way]
    found, generated = read_own(SmallModel(lacks=lacks), CHAT if endpoint == "chat" else PROMPT, endpoint)
    assert isinstance(found, Reading), found
    assert found.way == way
    before = [900, *encode(PROMPT), 901] if endpoint == "chat" else encode(PROMPT)
    assert len(found.positions) == len(generated.positions) == 6
    for each in found.positions:
        true = logprobs_after(before)
        assert each.logprob == pytest.approx(float(true.max()))
        assert each.rank == 1
        assert [one.logprob for one in each.top] == pytest.approx(sorted(map(float, true), reverse=True)[:20])
        before += encode(each.token)


@pytest.mark.parametrize("way", LACKS)
def test_tokens_that_the_model_would_not_choose_are_read(way: Way) -> None:
    given = tuple(Position(text) for text in (" za", " zo", " ra"))
    found, _ = read_own(SmallModel(lacks=LACKS[way]), CHAT, "chat", given)
    assert isinstance(found, Reading), found
    before = [900, *encode(PROMPT), 901]
    if way is Way.GREEDY_CHAT:
        assert len(found.positions) == 1  # the model's own answer goes on otherwise
    else:
        assert [each.token for each in found.positions] == [" za", " zo", " ra"]
    for each in found.positions:
        true = float(logprobs_after(before)[encode(each.token)[0]])
        is_listed = true >= sorted(map(float, logprobs_after(before)))[-20]
        known_anyway = way in (Way.PROMPT_LOGPROBS, Way.ECHO)
        assert each.logprob == (pytest.approx(true) if is_listed or known_anyway else None)
        assert len(each.top) == 20
        assert (each.rank is None) is not is_listed
        before += encode(each.token)


def test_log_probabilities_of_other_positions_are_not_taken() -> None:
    class Shifted(SmallModel):
        def _read(self, ids: list[int], batch: int) -> list[Any]:
            return [None, *super()._read([*ids, ids[0]], batch)[2:]] if ids else []

    found, _ = read_own(Shifted(), PROMPT, "completions")
    assert isinstance(found, Reading)
    assert found.way is Way.ONE_BY_ONE


def test_a_server_without_any_is_refused_before_any_work() -> None:
    async def read(url: str) -> None:
        async with open_reader(ModelSpec(base_url=url, model="scripted")):
            raise AssertionError

    with ScriptedServer(answer=lambda body: reply_with("yes", body), models=["scripted"]) as server:
        with pytest.raises(UnsupportedTaskError, match=r"cannot read a given text, because .*; use a server with"):
            asyncio.run(read(server.url))
        assert server.count < 20


def entry(token: str, logprob: float | None, number: int, data: list[int] | None = None) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "id": number, "bytes": data}


def test_odd_lists_are_read() -> None:
    listed = [("a", -1.0, 1), ("b", -9999.0, 2), ("c", None, 3), ("d", -math.inf, 4), ("\ufffd", -2.0, 5)]
    found = position_of("a", -1.0, [*listed, ("\ufffd", -2.0, 6), ("\ufffd", -3.0, 6)])
    assert [each.id for each in found.top] == [1, 6, 5]
    assert found.top[1].logprob == pytest.approx(math.log(math.exp(-2) + math.exp(-3)))
    assert position_of("x", -9999.0, listed).logprob is None
    assert position_of("x", -5.0, listed).rank is None
    with pytest.raises(ReplyError, match="exceed 1"):
        position_of("a", 0.5, [])


def test_a_list_of_twenty_one_loses_the_token_that_was_added_to_it() -> None:
    found = position_of("own", -9.0, [("own", -9.0, 99), *((f"t{place}", -4.0, place) for place in range(20))])
    assert len(found.top) == 20
    assert found.least == -4.0


def test_minus_infinity_in_json_is_read() -> None:
    body = (
        b'{"choices":[{"logprobs":{"tokens":["a"],"token_logprobs":[-0.1],"top_logprobs":[{"a":-0.1,"b":-Infinity}]}}]}'
    )
    assert [each.token for each in read_generation(body).positions[0].top] == ["a"]


def test_half_a_character_has_no_probabilities_at_llama_cpps() -> None:
    found = read_native_token(b'{"content": "", "tokens_evaluated": 3}', Position("#226", id=226, is_text=False))
    assert found == Position("#226", id=226, is_text=False)


def test_a_server_that_knows_no_bias_is_found_out() -> None:
    reply = {"content": "x", "tokens_evaluated": 3, "completion_probabilities": [entry("x", -0.1, 7)]}
    with pytest.raises(ReplyError, match="logit_bias"):
        read_native_token(json.dumps(reply).encode(), Position("y", id=8))


def test_a_text_split_otherwise_is_refused() -> None:
    logprobs = {"tokens": ["ab", "c", "d"], "token_logprobs": [None, -1, -1], "top_logprobs": [None, {"c": -1}, {}]}
    body = json.dumps({"choices": [{"text": "abcd", "logprobs": logprobs}]}).encode()
    with pytest.raises(ReplyError, match="other tokens"):
        read_whole(body, [Position("b"), Position("c")], None)


def test_names_are_ids_where_both_have_them() -> None:
    by_id, by_text = position_of("a", -1.0, [("a", -1.0, 1)]), position_of("a", -1.0, [("a", -1.0, None)])
    assert common_names(by_id, by_id) == ({"#1": -1.0}, {"#1": -1.0})
    assert common_names(by_id, by_text) == ({"a": -1.0}, {"a": -1.0})
