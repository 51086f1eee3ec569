"""lm-eval's own ``local-completions`` client, with the same tokenizer but without transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.tasks.huggingface_tokenizer import HuggingFaceTokenizer


class _AsTransformers:
    """The few of ``PreTrainedTokenizerFast``'s members that the client uses, straight from the library."""

    def __init__(self, folder: str, tokenizer: HuggingFaceTokenizer) -> None:
        import tokenizers

        self._ours = tokenizer
        self._tokenizer = tokenizers.Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        for role in ("bos_token", "eos_token", "pad_token"):
            setattr(self, role, getattr(tokenizer, role))
            setattr(self, f"{role}_id", getattr(tokenizer, f"{role}_id"))

    def __call__(self, text: str | list[str], *, add_special_tokens: bool, **_: Any) -> Any:
        if isinstance(text, str):
            return _Encoding(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)
        return _Encoding([self._tokenizer.encode(each, add_special_tokens=add_special_tokens).ids for each in text])

    @property
    def chat_template(self) -> str:
        return self._ours.chat_template.text

    def apply_chat_template(
        self, turns: Any, *, tokenize: bool, add_generation_prompt: bool, continue_final_message: bool
    ) -> str:
        # Beside transformers itself it is tested on its own.
        assert not tokenize
        assert continue_final_message != add_generation_prompt
        return self._ours.chat_template.render(turns, add_generation_prompt=add_generation_prompt)

    def batch_decode(self, batch: list[list[int]]) -> list[str]:
        return [self._tokenizer.decode(ids, skip_special_tokens=False) for ids in batch]


class _Encoding:
    def __init__(self, input_ids: Any) -> None:
        self.input_ids = input_ids


def lm_eval_client(url: str, folder: str, **settings: Any) -> Any:
    """An open client that asks ``url``; `settings` as in lm-eval's ``--model_args``."""
    pytest.importorskip("tenacity")
    pytest.importorskip("tqdm")
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    client = LocalCompletionsAPI(base_url=f"{url}/v1/completions", tokenizer_backend=None, **settings)
    client.tokenizer_backend = "huggingface"
    client.tokenizer = _AsTransformers(folder, HuggingFaceTokenizer(folder))
    client.tokenized_requests = settings.get("tokenized_requests", True)
    return client
