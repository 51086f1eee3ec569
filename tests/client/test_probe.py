"""The probe against servers that can everything, nothing, or reply nonsense."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from assay.client.probe import TITLES, Capability, ProbeReport, Seen, probe
from assay.client.probe.server import PROMPT, ProbeReply, ServerUnderProbe, text_of
from assay.client.probe.templates import try_system_prompt
from assay.errors import SpecificationError
from assay.types import ModelSpec
from tests.servers.faults import FAULT_KINDS, STREAM_FAULTS
from tests.servers.scripted import Fault, ScriptedServer, reply_with
from tests.servers.wire import Body, Received, Wire

Page = Callable[[Received], Any]


class OpenServer(ScriptedServer):
    """A scripted server with more pages, and answers in a stream."""

    def __init__(self, pages: dict[str, Page], **settings: Any) -> None:
        super().__init__(**settings)
        self.pages = pages

    async def _serve(self, request: Received, wire: Wire) -> bool:
        path = request.path.partition("?")[0]
        if path in self.pages:
            page = self.pages[path](request)
            return await wire.send(page) if isinstance(page, bytes) else await wire.json(page)
        if request.body.get("stream"):
            self._note(request)
            events = [reply_with(None, request.body), *self.events(request.body)]
            lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
            return await wire.send(lines.encode(), content_type="text/event-stream")
        return await super()._serve(request, wire)

    def events(self, body: Body) -> list[Body]:
        return [
            {"choices": [{"index": 0, "delta": {"content": "A"}}]},
            {"choices": [{"index": 0, "delta": {"content": " river"}}]},
            {"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 2}},
        ]


STORY = "The river was wide and it ran past nine small towns on its way to"
TEMPLATE = "<s>user: {}<s>assistant:"
WORDS = PROMPT.split()


def story(body: Body) -> str:
    """What the good model says: depends on the prompt, and on the seed when sampling."""
    prompt = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
        prompt = " ".join(WORDS)
    lot = random.Random(f"{prompt} {body['seed'] if body['temperature'] else ''}")
    text = f"{STORY} {lot.randrange(10**6)}"
    for stop in [body["stop"]] if isinstance(body.get("stop"), str) else body.get("stop", []):
        text = text.partition(stop)[0] if stop else text
    return text


def good(body: Body) -> Body | str:
    """A model that does all it is asked."""
    prompt = body.get("prompt")
    if isinstance(prompt, str) and (body.get("echo") or "prompt_logprobs" in body):
        return echoed(body, prompt)
    prompts = prompt if isinstance(prompt, list) and isinstance(prompt[0], str) else None
    bodies = [{**body, "prompt": text} for text in prompts] if prompts else [body] * body.get("n", 1)
    replies = [reply_with(story(one), one, "length") for one in bodies]
    reply = replies[0]
    reply["choices"] = [{**one["choices"][0], "index": index} for index, one in enumerate(replies)]
    messages = body["messages"] if "messages" in body else [{"content": str(prompt)}]
    inside = [word for message in messages for word in message["content"].split()]
    reply["usage"] = {
        "prompt_tokens": len(inside) + (6 if "messages" in body else 0),
        "completion_tokens": body["max_tokens"] * len(replies),
    }
    if top := body.get("top_logprobs"):
        content = [{"token": "A", "logprob": -0.1, "top_logprobs": [{"token": "A", "logprob": -0.1}] * min(top, 20)}]
        reply["choices"][0]["logprobs"] = {"content": content}
    elif "logprobs" in body:
        reply["choices"][0]["logprobs"] = {"tokens": ["A"], "token_logprobs": [-0.1], "top_logprobs": [{"A": -0.1}]}
    return reply


def echoed(body: Body, prompt: str, shift: int = 0) -> Body:
    """The prompt's log-probabilities: the likeliest next word is always the next day of the week."""
    words = [word if not place else f" {word}" for place, word in enumerate(prompt.split(" "))]
    following = {"Monday,": " Tuesday", "Tuesday": " Wednesday"}
    ahead = [following.get(words[max(0, place - 1 + shift)].strip(), words[place]) for place in range(len(words))]
    generated = following.get(words[-1].strip(), ",")
    reply = reply_with(generated, body, "length")
    if "prompt_logprobs" in body:
        entries = [{"1": {"logprob": -0.5, "decoded_token": word}} for word in words]
        reply["choices"][0]["prompt_logprobs"] = [None, *entries[1:]]
        return reply
    reply["choices"][0]["text"] = prompt + generated
    reply["choices"][0]["logprobs"] = {
        "tokens": [*words, generated],
        "token_logprobs": [None, *[-0.5] * (len(words) - 1), -0.5],
        "top_logprobs": [None, *({word: -0.5} for word in ahead[1:]), {generated: -0.5}],
    }
    return reply


def pages() -> dict[str, Page]:
    return {
        "/version": lambda _: {"version": "0.32.0"},
        "/metrics": lambda _: b'# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{a="b"} 0.0\n',
        "/tokenize": lambda request: {
            "tokens": list(range(len(WORDS) if "prompt" in request.body else 6 + len(WORDS)))
        },
        "/detokenize": lambda _: {"prompt": " ".join(["<s>"] * 6 + WORDS)},
    }


def saying(value: Any) -> Page:
    """A page that is always the same."""
    return lambda _: value


LISTED = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 100}]}


def look(url: str, model: str = "", **options: Any) -> ProbeReport:
    return probe(ModelSpec(base_url=url, model=model), **options)


def test_a_server_that_can_everything() -> None:
    with OpenServer(pages(), answer=good, model_list=LISTED) as server:
        report = look(server.url)
    assert (report.software, report.version, report.model, report.max_length) == ("vllm", "0.32.0", "m", 100)
    assert list(report.findings) == list(Capability)
    expected = dict.fromkeys(Capability, Seen.YES) | {
        Capability.REASONING: Seen.NO,
        Capability.BOS_DOUBLED: Seen.NO,
        Capability.OVERFLOW_REFUSED: Seen.NO,  # The scripted model has no limit.
    }
    assert {
        capability: str(finding)
        for capability, finding in report.findings.items()
        if finding.seen is not expected[capability]
    } == {}
    assert report[Capability.METRICS].value == "vllm:num_requests_waiting"
    assert report[Capability.CHAT_LOGPROBS].value == 20
    assert report[Capability.COMPLETIONS_LOGPROBS].value == "completions"
    assert report[Capability.REPEATABLE_TOGETHER].value == 8
    assert server.count == 0, "a probe's requests are marked as such"
    assert len(server.probes) <= report.requests <= 60
    assert all(request.body.get("max_tokens", 0) <= 32 for request in server.probes)


Twist = Callable[[Body], Body | str]
"""How a server differs from the good one."""


def without(*fields: str) -> Twist:
    """A server that does not know some fields."""
    return lambda body: good({key: value for key, value in body.items() if key not in fields})


def changed(**choice: Any) -> Twist:
    """A server whose first choice is another."""

    def answer(body: Body) -> Body | str:
        reply = good(body)
        assert isinstance(reply, dict)
        return {**reply, "choices": [{**reply["choices"][0], **choice}, *reply["choices"][1:]]}

    return answer


def refusing(message: str, when: Callable[[Body], bool]) -> Twist:
    """A server that answers some requests with 400 and a message."""

    def answer(body: Body) -> Body | str:
        if when(body):
            raise ValueError(message)
        return good(body)

    return answer


def stop_stays(body: Body) -> Body | str:
    if not isinstance(body.get("stop"), list) or not body["stop"]:
        return good(body)
    reply = without("stop")(body)
    assert isinstance(reply, dict)
    choice = reply["choices"][0]
    said = choice.get("message", choice)
    name = "content" if "message" in choice else "text"
    stop = body["stop"][-1]
    said[name] = said[name].partition(stop)[0] + stop
    return reply


def first_prompt_counts(body: Body) -> Body | str:
    reply = good(body)
    if isinstance(body.get("prompt"), list) and isinstance(reply, dict):
        reply["usage"]["prompt_tokens"] = len(WORDS)
    return reply


def one_more_token_in_completions(body: Body) -> Body | str:
    reply = good(body)
    if str(body.get("prompt", "")).startswith("<s>") and isinstance(reply, dict):
        reply["usage"]["prompt_tokens"] += 1
    return reply


def forgetful() -> Twist:
    """A server that never says the same twice."""
    lot = random.Random(1)
    return lambda body: reply_with(f"{STORY} {lot.random()}", body, "length")


def shifted(body: Body) -> Body | str:
    return echoed(body, body["prompt"], shift=1) if body.get("echo") else good(body)


def thinking(body: Body) -> Body | str:
    return reply_with("", body, "length", reasoning_content=story(body)) if "messages" in body else good(body)


def is_long(body: Body) -> bool:
    return len(str(body.get("prompt") or body.get("messages"))) > 200


def without_system(body: Body) -> Body | str:
    return good({**body, "messages": body["messages"][-1:]} if "messages" in body else body)


def with_default_system(body: Body) -> Body | str:
    if "messages" in body and not has_system(body):
        body = {**body, "messages": [{"role": "system", "content": "You are helpful. " * 8}, *body["messages"]]}
    return good(body)


def has_system(body: Body) -> bool:
    return any(message["role"] == "system" for message in body.get("messages", ()))


C = Capability
TWISTS: list[tuple[Capability, Twist, Seen, str]] = [
    (C.STOP, without("stop"), Seen.NO, "ignored"),
    (C.STOP, stop_stays, Seen.NO, "'wide' ended the answer and stays in it"),
    (C.MANY_STOPS, refusing("at most 4", lambda body: len(body.get("stop", [])) > 4), Seen.NO, "HTTP 400"),
    (C.EMPTY_STOP_LIST, refusing("empty stop", lambda body: body.get("stop") == []), Seen.NO, "empty stop"),
    (C.EMPTY_STOP_STRING, lambda body: good(body) if body.get("stop") != "" else "", Seen.NO, "cut the answer to 0"),
    (C.SEVERAL_CHOICES, without("n"), Seen.NO, "1 choices for n = 2"),
    (C.PROMPT_LIST, first_prompt_counts, Seen.YES, "counts the first only"),
    (C.UNKNOWN_MODEL, refusing("no such model", lambda body: body["model"] != "m"), Seen.NO, "no such model"),
    (C.UNKNOWN_FIELD, refusing("extra field", lambda body: "assay_no_such_field" in body), Seen.NO, "extra field"),
    (C.OVERFLOW_REFUSED, refusing("maximum context length is 9", is_long), Seen.YES, "maximum context length"),
    (C.OVERFLOW_REFUSED, refusing("no way", is_long), Seen.NO, "not said as such: HTTP 400"),
    (C.USAGE, lambda body: {"choices": [{"message": {"content": "A"}, "text": "A"}]}, Seen.NO, "no token counts"),
    (C.MAX_TOKENS, changed(finish_reason="stop"), Seen.NO, "finish_reason 'stop'"),
    (C.REASONING, thinking, Seen.YES, "in a field of their own"),
    (C.SYSTEM_PROMPT, without_system, Seen.NO, "21 prompt tokens with one of 18 words, 21 with one of 2"),
    (C.SYSTEM_PROMPT, with_default_system, Seen.YES, "with one of 18 words"),
    (C.SYSTEM_PROMPT, refusing("System role not supported", has_system), Seen.NO, "System role not supported"),
    (C.SEED, lambda body: good({**body, "seed": 1}), Seen.UNKNOWN, "unequal seeds too"),
    (C.SEED, forgetful(), Seen.NO, "equal seeds, unequal answers"),
    (C.REPEATABLE, forgetful(), Seen.NO, "0 of 2"),
    (C.REPEATABLE_TOGETHER, forgetful(), Seen.NO, "0 of 8"),
    (C.CHAT_LOGPROBS, without("top_logprobs", "logprobs"), Seen.NO, "ignored"),
    (C.CHAT_LOGPROBS, refusing("at most 5", lambda body: body.get("top_logprobs", 0) > 5), Seen.YES, "5 given"),
    (C.COMPLETIONS_LOGPROBS, changed(logprobs={"content": [{"token": "A"}]}), Seen.YES, "shape of chat"),
    (C.ECHO_LOGPROBS, without("echo"), Seen.NO, "ignored: "),
    (C.ECHO_LOGPROBS, shifted, Seen.NO, "belong to other tokens"),
    (C.PROMPT_LOGPROBS, without("prompt_logprobs"), Seen.NO, "no log-probabilities"),
    (C.BOS_DOUBLED, one_more_token_in_completions, Seen.YES, "when completions is sent the rendered text"),
    (C.CHAT, refusing("no template", lambda body: "messages" in body), Seen.NO, "no template"),
]


@pytest.mark.parametrize(
    ("capability", "twist", "seen", "evidence"), TWISTS, ids=[f"{twist[0]}-{twist[3]}" for twist in TWISTS]
)
def test_what_differs_is_found(capability: Capability, twist: Twist, seen: Seen, evidence: str) -> None:
    with OpenServer(pages(), answer=twist, model_list=LISTED) as server:
        finding = look(server.url)[capability]
    assert finding.seen is seen, finding
    assert evidence in finding.evidence


def test_without_chat_the_rest_is_asked_of_completions() -> None:
    answer = refusing("no template", lambda body: "messages" in body)
    with OpenServer(pages(), answer=answer, model_list=LISTED) as server:
        report = look(server.url)
    assert report[C.STOP].seen is report[C.SEED].seen is report[C.MANY_STOPS].seen is Seen.YES
    assert report[C.CHAT_LOGPROBS].seen is report[C.CHAT_TEMPLATE].seen is Seen.UNKNOWN


@pytest.mark.parametrize(
    ("page", "software", "version", "length"),
    [
        ({"/props": {"build_info": "b7", "default_generation_settings": {"n_ctx": 512}}}, "llama.cpp", "b7", 512),
        ({"/info": {"version": "3.1", "max_total_tokens": 900}}, "text-generation-inference", "3.1", 900),
        ({"/get_server_info": {"version": "0.5", "context_length": 800}}, "sglang", "0.5", 800),
        ({"/version": {"version": "1.2"}}, None, "1.2", None),
        ({"/openapi.json": {"paths": {"/load_model": {}}}}, "transformers serve", None, None),
        ({"/props": ["odd"], "/version": "odd", "/info": None}, None, None, None),
    ],
)
def test_who_it_is(page: dict[str, Any], software: str | None, version: str | None, length: int | None) -> None:
    held = {path: saying(value) for path, value in page.items()}
    with OpenServer(held, answer=good, models=["m"]) as server:
        report = look(server.url)
    assert (report.software, report.version, report.max_length) == (software, version, length)


@pytest.mark.parametrize(
    ("text", "seen", "evidence", "name"),
    [
        ("# TYPE x counter\nx 1\n", Seen.YES, "no gauge of waiting", None),
        ("# TYPE my_queue_size gauge\nmy_queue_size 3\n", Seen.YES, "my_queue_size = 3", "my_queue_size"),
        ("# TYPE request_queue_seconds gauge\nrequest_queue_seconds 3\n", Seen.YES, "no gauge of waiting", None),
        ("<html>", Seen.NO, "not the text format", None),
    ],
)
def test_metrics(text: str, seen: Seen, evidence: str, name: str | None) -> None:
    with OpenServer({"/metrics": lambda _: text.encode()}, answer=good, model_list=LISTED) as server:
        finding = look(server.url)[C.METRICS]
    assert (finding.seen, finding.value) == (seen, name)
    assert evidence in finding.evidence


def test_no_stream_is_said() -> None:
    with ScriptedServer(answer=good, model_list=LISTED, faults=[Fault("stream_ignored")]) as server:
        assert look(server.url)[C.STREAMING].evidence.startswith("no event with text")


def test_quick_is_few_requests() -> None:
    with OpenServer(pages(), answer=good, model_list=LISTED) as server:
        report = look(server.url, quick=True)
        asked = [request.body["max_tokens"] for request in server.probes if "completions" in request.path]
        assert sorted(asked) == [1, 1, 1, 1, 16, 16, 16]
    assert report.requests <= 16
    assert (report.software, report.version, report.max_length) == ("vllm", "0.32.0", 100)
    assert {capability: finding.seen for capability, finding in report.findings.items()} == {
        C.REACHABLE: Seen.YES,
        C.MODEL_LIST: Seen.YES,
        C.MAX_LENGTH: Seen.YES,
        C.CHAT: Seen.YES,
        C.COMPLETIONS: Seen.YES,
        C.USAGE: Seen.YES,
        C.MAX_TOKENS: Seen.YES,
        C.REASONING: Seen.NO,
        C.SYSTEM_PROMPT: Seen.YES,
        C.REPEATABLE: Seen.YES,
        C.TOKENIZE: Seen.YES,
        C.CHAT_TEMPLATE: Seen.YES,
        C.BOS_DOUBLED: Seen.NO,
    }
    assert report[C.STOP] == msgspec.json.decode(
        b'{"seen":"unknown","evidence":"not asked"}', type=type(report[C.STOP])
    )


def test_nothing_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        report = look(f"http://127.0.0.1:{unused.getsockname()[1]}", model="m")
    assert report[C.REACHABLE].seen is Seen.NO
    assert "nothing answers at" in report[C.REACHABLE].evidence
    assert {report[capability].seen for capability in Capability if capability is not C.REACHABLE} == {Seen.UNKNOWN}


def test_a_model_must_be_named_where_none_is_listed() -> None:
    with OpenServer({}, answer=good, model_list=[]) as server:
        with pytest.raises(SpecificationError, match="lists no models; name the one to ask"):
            look(server.url)
        assert look(server.url, model="m")[C.CHAT].seen is Seen.YES


def test_the_key_is_in_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-very-secret-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with OpenServer(pages(), answer=good, faults=[Fault("http_401_echo")], model_list=LISTED) as server:
        report = look(server.url)
    assert report[C.CHAT].seen is Seen.UNKNOWN
    assert "bad credentials: Bearer ***" in report[C.CHAT].evidence
    assert key not in msgspec.json.encode(report).decode()


def test_no_time_left() -> None:
    with OpenServer(pages(), answer=good, model_list=LISTED) as server:
        report = look(server.url, seconds=1e-9)
        assert server.probes == []
    assert report[C.CHAT].evidence == "no time was left to ask"
    assert report[C.REACHABLE].seen is Seen.YES


def test_a_server_that_hangs_is_left_in_time() -> None:
    with OpenServer({}, answer=good, faults=[Fault("hang", seconds=600)], model_list=LISTED) as server:
        report = look(server.url, seconds=0.3)
    assert report[C.CHAT].seen is Seen.UNKNOWN
    assert report[C.CHAT].evidence == "no reply in time"


@pytest.mark.parametrize(
    ("reply", "seen"), [(ProbeReply(fault="no reply in time"), [Seen.UNKNOWN]), (ProbeReply(status=404), [])]
)
def test_where_chat_says_nothing_the_system_prompt_is_unknown_or_not_there(reply: ProbeReply, seen: list[Seen]) -> None:
    class Silent:
        async def ask(self, *_: object, **__: object) -> ProbeReply:
            return reply

    found = asyncio.run(try_system_prompt(cast("ServerUnderProbe", Silent())))
    assert [finding.seen for finding in found.values()] == seen


@pytest.mark.parametrize("kind", sorted(FAULT_KINDS.keys() - STREAM_FAULTS - {"endless", "gzip_bomb", "large_reply"}))
def test_no_fault_is_more_than_a_finding(kind: str) -> None:
    with OpenServer({}, answer=good, faults=[Fault(kind)], model_list=LISTED) as server:
        report = look(server.url)
    assert list(report.findings) == list(Capability)
    assert all(len(finding.evidence) <= 300 for finding in report.findings.values())


def test_one_reset_is_forgiven() -> None:
    with OpenServer(pages(), answer=good, faults=[Fault("reset", first=1)], model_list=LISTED) as server:
        assert look(server.url)[C.CHAT].seen is Seen.YES


ODD: list[Any] = [None, [], {}, "", 4, -1, True, "\ud800\x1b", [None], {"a": []}, {"content": None}, [{}], [[1]], 1e400]


def mutated(value: Any, lot: random.Random) -> Any:
    """The value with something in it replaced by something odd."""
    if lot.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return lot.choice(ODD)
    if isinstance(value, dict):
        key = lot.choice(list(value))
        return {**value, key: mutated(value[key], lot)}
    place = lot.randrange(len(value))
    return [*value[:place], mutated(value[place], lot), *value[place + 1 :]]


@pytest.mark.parametrize("seed", range(20))
def test_odd_replies_are_findings_too(seed: int) -> None:
    lot = random.Random(seed)

    def odd(body: Body) -> Body:
        reply = good(body)
        odd_reply = mutated(reply, lot) if lot.random() < 0.5 else reply
        return odd_reply if isinstance(odd_reply, dict) else {"choices": odd_reply}

    def page(path: str) -> Page:
        told = pages().get(path, saying({"version": {}, "build_info": 4, "paths": []}))
        return lambda request: mutated(told(request), lot)

    odd_pages = {path: page(path) for path in (*pages(), "/props", "/info", "/openapi.json", "/apply-template")}

    class OddServer(OpenServer):
        def events(self, body: Body) -> list[Body]:
            return [mutated(event, lot) for event in super().events(body)]

    with OddServer(odd_pages, answer=odd, model_list=mutated(LISTED, lot)) as server:
        report = look(server.url, model="m")
    assert list(report.findings) == list(Capability)
    assert msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(report))), ProbeReport) == report


def test_every_capability_has_a_title() -> None:
    assert list(TITLES) == list(Capability)
    assert max(map(len, TITLES.values())) <= 40


def test_a_body_is_short_and_repeatable() -> None:
    async def say() -> str:
        with ScriptedServer(answer=story) as server:
            async with ServerUnderProbe(ModelSpec(base_url=server.url, model="m"), api_key=None) as probed:
                assert probed.body("completions", "p") == {
                    "model": "m",
                    "prompt": "p",
                    "temperature": 0,
                    "max_tokens": 16,
                    "seed": 1234,
                }
                return text_of((await probed.ask("chat")).parsed)

    assert asyncio.run(say()).startswith(STORY)
