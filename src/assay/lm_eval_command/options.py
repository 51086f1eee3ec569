"""How each option of ``lm_eval run`` and each model argument is treated; the docs show this table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Effect(StrEnum):
    """What an option does here."""

    SAME = "the same"
    NONE = "no effect"
    """Accepted with a remark on standard error; changes no request, score or file."""
    REFUSED = "refused"


@dataclass(frozen=True)
class Treatment:
    """How one option is treated."""

    effect: Effect
    words: str = ""
    """How it differs, why it has no effect, or what to use instead: a clause without a full stop."""


def _same(words: str = "") -> Treatment:
    return Treatment(Effect.SAME, words)


def _none(words: str) -> Treatment:
    return Treatment(Effect.NONE, words)


def _refused(words: str) -> Treatment:
    return Treatment(Effect.REFUSED, words)


_IN_SERVER = "the model runs in its server, which is started with that"
_BY_API = "lm-eval does not use it for served models either"
_LOG_RESULTS = "log the results file after the run; it has lm-eval's format"

OPTIONS: Mapping[str, Treatment] = {
    "config": _same("read by lm-eval's own reader; options on the command line take precedence"),
    "tasks": _same("names, patterns, groups, tags, YAML files and folders"),
    "model": _same("local-completions, local-chat-completions, openai-…; others are refused, with what to use instead"),
    "model_args": _same("see the table of model arguments"),
    "apply_chat_template": _same("local-completions: the tokenizer's default template; a template's name is refused"),
    "limit": _same(),
    "use_cache": _refused(
        "leave it out: each run keeps its answers in a journal, and the same command goes on with them after an "
        "interruption"
    ),
    "num_fewshot": _same(),
    "batch_size": _same(
        "prompts are sent one by one; with local-completions and a batch_size of N, N times as many at once"
    ),
    "max_batch_size": _none(_BY_API),
    "device": _none(_IN_SERVER),
    "gen_kwargs": _same(),
    "output_path": _same(
        "without it lm-eval writes nothing; here files go to results/. NAME.json gets the results, and its folder also "
        "one with the run's journal"
    ),
    "log_samples": _same(),
    "samples": _same(),
    "cache_requests": _none("prepared data sets are always kept"),
    "check_integrity": _refused("use lm_eval validate --tasks …, or assay lm-eval validate, which is the same"),
    "system_instruction": _same(),
    "fewshot_as_multiturn": _same(),
    "include_path": _same(),
    "verbosity": _none("set LMEVAL_LOG_LEVEL for lm-eval's own commands; remarks here are few, and always shown"),
    "write_out": _refused("look at prompts and answers afterwards with assay show RESULTS"),
    "show_config": _same("the whole results file on standard output, before the table"),
    "wandb_args": _refused(_LOG_RESULTS),
    "wandb_config_args": _refused(_LOG_RESULTS),
    "trackio_args": _refused(_LOG_RESULTS),
    "hf_hub_log_args": _refused(_LOG_RESULTS),
    "predict_only": _same(),
    "seed": _same("None is refused: a run without a seed is never the same twice"),
    "trust_remote_code": _none("data sets and tokenizers are read as files; none of their code is run"),
    "confirm_run_unsafe_code": _same("the programs run in a sandbox; HF_ALLOW_CODE_EVAL is not needed"),
    "metadata": _same(),
}
"""Option of ``lm_eval run``, by the name of its value -> how it is treated."""

MODEL_ARGUMENTS: Mapping[str, Treatment] = {
    "model": _same("the name under which the server serves the model"),
    "pretrained": _same("where there is no model"),
    "base_url": _same("with or without the endpoint's path"),
    "tokenizer": _same("with local-completions; the model's name if it is left out"),
    "tokenizer_backend": _same("auto is huggingface where a tokenizer is named"),
    "tokenized_requests": _same(),
    "num_concurrent": _same("left out: as many as keep the server busy"),
    "max_retries": _same("left out: 8 attempts, and outages are waited out"),
    "timeout": _same("left out: 7200 seconds"),
    "batch_size": _same("see --batch_size"),
    "seed": _same(),
    "max_length": _same(),
    "max_gen_toks": _same("for tasks that set none themselves"),
    "eos_string": _same("as in lm-eval, sent only where num_concurrent is 1 or left out"),
    "add_bos_token": _same(),
    "custom_prefix_token_id": _same(),
    "revision": _same("of the tokenizer"),
    "verify_certificate": _same(),
    "ca_cert_path": _same(),
    "header": _same("as in lm-eval, in place of the header with the API key"),
    "auth_token": _refused("the server's tokenizer gets the API key of the run (OPENAI_API_KEY)"),
    "think_end_token": _same("with local-chat-completions"),
    "trust_remote_code": _none("none of a tokenizer's code is run"),
    "use_fast_tokenizer": _none("tokenizers are read from tokenizer.json, which is the fast one"),
    "truncate": _none(_BY_API),
    "max_images": _none("tasks with images are refused"),
}
"""Argument of lm-eval's clients for served models -> how it is treated."""

OTHER_MODELS = (
    "asks no OpenAI-compatible server: serve the model (vllm serve, sglang.launch_server, llama-server, …) and write "
    "--model local-chat-completions --model_args model=NAME,base_url=http://localhost:8000/v1/chat/completions"
)
