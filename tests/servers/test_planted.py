"""The server with planted faults: sound without one, and each fault is what its name says."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.servers.planted import (
    FAULTS,
    NAME,
    Fault,
    PlantedServer,
    SmallModel,
    encode,
    logprobs_after,
    text_of,
)
from tests.servers.test_scripted import post

pytestmark = pytest.mark.slow

PROMPT = "Say: ba ke lo di ze, then more"
GREEDY = {"model": NAME, "prompt": PROMPT, "temperature": 0, "max_tokens": 40, "logprobs": 5}
SAMPLED = {**GREEDY, "temperature": 0.5, "top_p": 0.3, "seed": 7}


def completion(server: PlantedServer, **body: Any) -> Any:
    return post(server.url, {**GREEDY, **body}, "/v1/completions")["choices"][0]


def test_a_texts_tokens_make_the_text() -> None:
    text = "ba ba? ß ke\n"
    assert "".join(map(text_of, encode(text))) == text
    assert len(encode(" ba ke")) == 2


def test_a_sound_server_states_the_models_own_distribution_generated_and_read_back() -> None:
    with PlantedServer() as server:
        generated = completion(server)["logprobs"]
        read = completion(server, prompt=PROMPT + "".join(generated["tokens"]), echo=True, max_tokens=1)
        by_id = completion(server, prompt=encode(PROMPT + "".join(generated["tokens"])), prompt_logprobs=5)
    first = logprobs_after(encode(PROMPT))
    assert generated["token_logprobs"][0] == pytest.approx(first.max())
    assert list(generated["top_logprobs"][0].values()) == pytest.approx(sorted(first, reverse=True)[:5])
    assert math.fsum(np.exp(first)) == pytest.approx(1)
    start = len(encode(PROMPT))
    assert read["logprobs"]["tokens"][start:-1] == generated["tokens"]
    assert read["logprobs"]["token_logprobs"][0] is None
    assert read["logprobs"]["token_logprobs"][start:-1] == pytest.approx(generated["token_logprobs"])
    own = [next(iter(entry.values())) for entry in by_id["prompt_logprobs"][start:]]
    assert [each["decoded_token"] for each in own] == generated["tokens"]
    assert [each["logprob"] for each in own] == pytest.approx(generated["token_logprobs"])


def test_chat_and_streams_give_the_same_answer_as_a_whole_reply() -> None:
    body = {"model": NAME, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}
    with PlantedServer() as server:
        whole = post(server.url, {**body, "logprobs": True, "top_logprobs": 3})
        counted = post(server.url, {"messages": body["messages"]}, "/tokenize")
    choice = whole["choices"][0]
    entries = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == choice["message"]["content"]
    assert whole["usage"]["prompt_tokens"] == len(counted["tokens"])
    assert [entry["top_logprobs"][0]["token"] for entry in entries] == [entry["token"] for entry in entries]


def draw(server: PlantedServer, **body: Any) -> list[str]:
    return [completion(server, **{**SAMPLED, "seed": seed, **body})["text"] for seed in (1, 2, 1)]


def everything(fault: Fault | None) -> dict[str, Any]:
    """What a client can see of a server, by what it looks at."""
    with PlantedServer(SmallModel(fault)) as server, ThreadPoolExecutor(8) as pool:
        other = completion(server, prompt="Another prompt of more than 16 characters", max_tokens=1)
        cold, warm = completion(server), completion(server)
        crowd = list(pool.map(lambda _: completion(server), range(8)))
        stop = text_of(encode(cold["text"])[5])
        first, second, again = draw(server, top_p=1)
        whole = post(server.url, GREEDY, "/v1/completions")["usage"]
        chat = {"model": NAME, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}
        listed = post(server.url, {**chat, "logprobs": True, "top_logprobs": 3})["choices"][0]
        hot = draw(server, top_p=1, temperature=0.01)
        nucleus = draw(server, top_p=0.001, temperature=1)
    assert other["text"]
    return {
        "cold": (cold["text"], cold["logprobs"]),
        "warm": warm == cold,
        "crowd": all(each == cold for each in crowd),
        "stop": stop,
        "aligned": "".join(each["token"] for each in listed["logprobs"]["content"]) == listed["message"]["content"],
        "sum": sum(math.exp(each["logprob"]) for each in listed["logprobs"]["content"][0]["top_logprobs"]) <= 1,
        "is_greedy_at_0.01": len(set(hot)) == 1,
        "is_greedy_in_a_small_nucleus": len(set(nucleus)) == 1,
        "seeds": (first == again, first == second),
        "usage": whole,
    }


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in ("stream_loses_end", "late_stop")])
def test_each_fault_is_seen(fault: Fault) -> None:
    assert everything(fault) != everything(None)


def test_stop_strings_end_an_answer_before_them_or_late() -> None:
    with PlantedServer() as sound, PlantedServer(SmallModel("late_stop")) as late:
        text = completion(sound)["text"]
        fifth, sixth = map(text_of, encode(text)[4:6])
        before = text[: text.index(fifth)]
        assert completion(sound, stop=[fifth[1:] + sixth[:2]])["text"] == before + fifth[:1]
        assert completion(sound, stop=[fifth])["text"] == before
        assert completion(late, stop=[fifth])["text"] == before + fifth + sixth
