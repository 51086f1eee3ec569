"""The server's own tokenizer, over HTTP, as lm-eval's ``tokenizer_backend=remote`` uses it.

vLLM offers it: ``/tokenize`` and ``/detokenize`` always, ``/tokenizer_info`` with ``--enable-tokenizer-info-endpoint``.
llama.cpp's server, which lm-eval cannot ask, names its fields otherwise, and says in ``/props`` what vLLM says in
``/tokenizer_info``.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from assay.client.api_key import read_api_key
from assay.client.probe.server import ServerUnderProbe
from assay.errors import ServerUnreachableError, SpecificationError
from assay.tasks.chat_template import ChatTemplate

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from assay.client.probe.server import ProbeReply
    from assay.types import ModelSpec

_ATTEMPTS = 3
_TIMEOUT = 30.0
_ROLES = ("bos_token", "eos_token", "pad_token")


class _Fields(NamedTuple):
    """Names of fields that differ between servers."""

    text: str
    adds_special: str


_VLLM = _Fields("prompt", "add_special_tokens")
_LLAMA_CPP = _Fields("content", "add_special")


class RemoteTokenizer:
    """Text to token ids and back, one request each; of several servers the first is asked.

    Args:
        model: names the server and how to reach it.

    Raises:
        SpecificationError: the server does not offer its tokenizer.
        ServerUnreachableError: it does not answer.
    """

    recorded: ClassVar[dict[str, Any]] = {}
    """lm-eval writes nothing of it."""
    cuts_prompts = True

    def __init__(self, model: ModelSpec) -> None:
        self._custom_prefix_token_id = model.custom_prefix_token_id
        key = read_api_key(model)
        self._server = ServerUnderProbe(model, api_key=key, request_timeout=_TIMEOUT, seconds=float("inf"))
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, name="assay-remote-tokenizer", daemon=True)
        thread.start()
        weakref.finalize(self, _close, self._server, self._loop, thread)
        info, self._fields = self._introduction()
        self._info: dict[str, Any] = info.json if isinstance(info.json, dict) else {}
        self.eos_token: str | None = self._named("eos_token")

    @property
    def is_known_to_lm_eval(self) -> bool:
        """Whether lm-eval can ask this server for its tokens, too."""
        return self._fields == _VLLM

    @functools.cached_property
    def prefix_token_id(self) -> int:
        """The token before a text without context: the BOS token, else the EOS token.

        Raises:
            SpecificationError: the server names neither.
        """
        if self._custom_prefix_token_id is not None:
            return self._custom_prefix_token_id
        for role in ("bos_token", "eos_token"):
            if (name := self._named(role)) and (first := self.encode(name)[:1]) and first != [0]:
                return first[0]
        raise SpecificationError(
            f"the server's tokenizer ({self._server.address}/tokenizer_info) names no bos_token and no eos_token; one "
            "of them has to stand before a text without context (--custom-prefix-token-id)"
        )

    @functools.cached_property
    def chat_template(self) -> ChatTemplate:
        """The template by which conversations become text.

        Raises:
            SpecificationError: the server does not tell it, or it cannot be read.
        """
        source = f"{self._server.address}/tokenizer_info"
        template = self._named("chat_template")
        if template is None:
            raise SpecificationError(f"the server's tokenizer ({source}) has no chat template")
        return ChatTemplate(template, {role: name for role in _ROLES if (name := self._named(role))}, source)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without special tokens added.

        Raises:
            ServerUnreachableError: the server does not tell them.
        """
        fields = self._fields
        reply = self._ask(lambda: self._server.post("/tokenize", **{fields.text: text, fields.adds_special: False}))
        ids = reply.at("tokens")
        if not isinstance(ids, list) or not all(type(token) is int for token in ids):
            raise self._odd_reply("/tokenize", reply)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens included.

        Raises:
            ServerUnreachableError: the server does not tell it.
        """
        reply = self._ask(lambda: self._server.post("/detokenize", tokens=list(ids)))
        text = reply.at(self._fields.text)
        if not isinstance(text, str):
            raise self._odd_reply("/detokenize", reply)
        return text

    def _introduction(self) -> tuple[ProbeReply, _Fields]:
        """What the server says of its tokenizer, and how it names things."""
        try:
            return self._ask(lambda: self._server.get("/tokenizer_info")), _VLLM
        except SpecificationError:
            properties = self._run(self._server.get("/props"))
            if properties.fault or not isinstance(properties.at("bos_token"), str):
                raise
            return properties, _LLAMA_CPP

    def _named(self, role: str) -> str | None:
        value = self._info.get(role)
        return value if isinstance(value, str) and value else None

    def _ask(self, send: Callable[[], Coroutine[Any, Any, ProbeReply]]) -> ProbeReply:
        for _ in range(_ATTEMPTS):
            reply: ProbeReply = self._run(send())
            if not reply.fault:
                return reply
            if 400 <= reply.status < 500 and reply.status != 429:
                break
        if reply.status in (404, 405, 501):
            raise SpecificationError(
                f"the server offers no tokenizer ({reply.fault}); vLLM does with --enable-tokenizer-info-endpoint; "
                "else name the model's (--tokenizer DIR|NAME)"
            )
        raise ServerUnreachableError(f"the server's tokenizer cannot be asked: {reply.fault}")

    def _odd_reply(self, path: str, reply: ProbeReply) -> ServerUnreachableError:
        said = self._server.clean(reply.body.decode("utf-8", "replace"))
        return ServerUnreachableError(f"{self._server.address}{path} answered without tokens: {said}")

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _close(server: ServerUnderProbe, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
