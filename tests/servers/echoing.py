"""Servers' answers to requests for a prompt's log-probabilities, right and wrong, all from one imaginary model.

Shapes and faults are those of the real servers named, as measured.
"""

from __future__ import annotations

import hashlib
from typing import Any

from assay.tasks.tokenizer import Tokenizer

Body = dict[str, Any]


class ImaginaryModel:
    """Predicts from a hash of all that came before: of no use, but always the same and never shifted by accident.

    Args:
        tokenizer: splits prompts that come as text.
        begins_with: put before prompts that come as text, as a server's beginning-of-text token.
    """

    def __init__(self, tokenizer: Tokenizer, *, begins_with: str = "") -> None:
        self.tokenizer = tokenizer
        self._begins_with = begins_with

    def vllm(self, body: Body) -> Body:
        """Right: every prompt token, the first without a value, and the generated token."""
        ids = self._ids(body)
        if "prompt_logprobs" in body:
            generated = self.tokenizer.decode([self.likeliest(ids)])
            choice = {"text": generated, "logprobs": None, "prompt_logprobs": self._prompt_logprobs(ids)}
            return self._reply(ids, choice)
        whole = [*ids, self.likeliest(ids)]
        values = [None, *(self.logprob(whole[:place], whole[place]) for place in range(1, len(whole)))]
        reply = self._legacy(whole, values, whole)
        reply["choices"][0]["prompt_logprobs"] = self._prompt_logprobs(ids)
        return reply

    def vllm_without_echo(self, body: Body) -> Body:
        """A gateway that refuses ``echo`` and passes ``prompt_logprobs`` on; the scripted server makes it a 400."""
        if "echo" in body:
            raise ValueError("echo is not supported")
        return self.vllm(body)

    def shifted(self, body: Body) -> Body:
        """As vLLM, but every value belongs to the next place."""
        ids = self._ids(body)
        ids = [*ids, self.likeliest(ids)]
        values = [None, *(self.logprob(ids[: place + 1], ids[place]) for place in range(1, len(ids)))]
        return self._legacy(ids, values, ids, shift=1)

    def llama_cpp_python(self, body: Body) -> Body:
        """Shifted by one, and without the generated token, for which it has evaluated nothing."""
        ids = self._ids(body)
        values = [None, *(self.logprob(ids[: place + 1], ids[place]) for place in range(1, len(ids)))]
        return self._legacy([*ids, self.likeliest(ids)], values, ids, shift=1)

    def sglang(self, body: Body) -> Body:
        """``echo`` with log-probabilities refused, and the native ``/generate``."""
        if "sampling_params" not in body:
            if "echo" in body or "prompt_logprobs" in body:
                raise ValueError("Echo is not compatible with logprobs")
            return self.transformers_serve(body)
        assert body["return_logprob"] is body["return_text_in_logprobs"] is True
        assert (body["logprob_start_len"], body["top_logprobs_num"]) == (0, 1)
        ids = body["input_ids"] if "input_ids" in body else self.tokenizer.encode(self._begins_with + body["text"])
        own: list[list[Any]] = [
            [None if place == 0 else self.logprob(ids[:place], token), token] for place, token in enumerate(ids)
        ]
        best = [self.likeliest(ids[:place]) for place in range(1, len(ids))]
        top: list[list[list[Any]]] = [
            [[self.logprob(ids[: place + 1], token), token]] for place, token in enumerate(best)
        ]
        meta = {
            "input_token_logprobs": [[value, token, self.tokenizer.decode([token])] for value, token in own],
            "input_top_logprobs": [
                None,
                *([[value, token, self.tokenizer.decode([token])]] for ((value, token),) in top),
            ],
            "prompt_tokens": len(ids),
            "completion_tokens": 1,
            "finish_reason": {"type": "length", "length": 1},
        }
        return {"text": self.tokenizer.decode([self.likeliest(ids)]), "meta_info": meta}

    def llama_cpp(self, body: Body) -> Body:
        """``echo`` ignored; log-probabilities of the generated token, in the chat shape."""
        ids = self._ids(body)
        token = self.likeliest(ids)
        text, value = self.tokenizer.decode([token]), self.logprob(ids, token)
        entry = {"id": token, "token": text, "bytes": list(text.encode()), "logprob": value}
        return self._reply(ids, {"text": text, "logprobs": {"content": [{**entry, "top_logprobs": [entry]}]}})

    def transformers_serve(self, body: Body) -> Body:
        """``echo`` and ``logprobs`` ignored."""
        ids = self._ids(body)
        return self._reply(ids, {"text": self.tokenizer.decode([self.likeliest(ids)]), "logprobs": None})

    def echo_ignored(self, body: Body) -> Body:
        """The legacy shape, for the generated token alone."""
        ids = self._ids(body)
        token = self.likeliest(ids)
        return self._legacy([token], [self.logprob(ids, token)], [token], before=ids)

    def logprob(self, before: list[int], token: int) -> float:
        likeliest = self.likeliest(before)
        if token == likeliest:
            return -0.25 - _fraction(before) / 2
        return -1.5 - 10 * _fraction([*before, -1, token])

    def likeliest(self, before: list[int]) -> int:
        """Some token with a text of its own: a printable ASCII character's."""
        return self.tokenizer.encode(chr(ord("a") + int(26 * _fraction(before))))[0]

    def llama_cpp_native(self, body: Body) -> Body:
        """llama.cpp with its own ``/completion``: a bias changes what is generated, and no log-probability."""
        if "n_predict" not in body:
            return self.llama_cpp(body)
        assert (body["n_predict"], body["n_probs"], body["temperature"]) == (1, 1, 0)
        before = body["prompt"]
        best = self.likeliest(before)
        ((token, bias),) = body.get("logit_bias", [[best, 0]])
        assert bias > 1000 or token == best
        text = self.tokenizer.decode([token])
        top = {"id": best, "token": self.tokenizer.decode([best]), "logprob": self.logprob(before, best)}
        forced = {"id": token, "token": text, "logprob": self.logprob(before, token), "top_logprobs": [top]}
        return {
            "content": text,
            "model": "imaginary",
            "tokens_evaluated": len(before),
            "completion_probabilities": [forced],
        }

    def _ids(self, body: Body) -> list[int]:
        if "prompt" not in body:
            raise ValueError("no prompt")
        prompt = body["prompt"]
        if isinstance(prompt, str):
            return self.tokenizer.encode(self._begins_with + prompt)
        (ids,) = prompt
        return list(ids)

    def _legacy(
        self,
        echoed: list[int],
        values: list[float | None],
        valued: list[int],
        *,
        shift: int = 0,
        before: list[int] | None = None,
    ) -> Body:
        texts = [self.tokenizer.decode([token]) for token in valued]
        tops: list[dict[str, float] | None] = []
        for place, (text, value) in enumerate(zip(texts, values, strict=True)):
            context = [*(before or []), *valued[: place + shift]]
            best = self.likeliest(context)
            top = {self.tokenizer.decode([best]): self.logprob(context, best)}
            tops.append(None if value is None else top | {text: value})
        logprobs = {"tokens": texts, "token_logprobs": values, "top_logprobs": tops}
        return self._reply(echoed[:-1], {"text": self.tokenizer.decode(echoed), "logprobs": logprobs})

    def _prompt_logprobs(self, ids: list[int]) -> list[dict[str, Any] | None]:
        return [None, *(self._candidate_objects(ids[:place], ids[place]) for place in range(1, len(ids)))]

    def _candidate_objects(self, before: list[int], token: int) -> dict[str, Any]:
        best = self.likeliest(before)
        return {
            str(each): {
                "logprob": self.logprob(before, each),
                "rank": 1 if each == best else 7,
                "decoded_token": self.tokenizer.decode([each]),
            }
            for each in (token, best)
        }

    def _reply(self, ids: list[int], choice: Body) -> Body:
        usage = {"prompt_tokens": len(ids), "completion_tokens": 1, "total_tokens": len(ids) + 1}
        choices = [{"index": 0, "finish_reason": "length", **choice}]
        return {"object": "text_completion", "model": "imaginary", "usage": usage, "choices": choices}


def _fraction(ids: list[int]) -> float:
    digest = hashlib.sha256(repr(ids).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
