"""Generation settings: read from text as lm-eval reads its ``--gen_kwargs``, and checked."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from assay.errors import SpecificationError

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMES = """
until max_gen_toks do_sample max_tokens max_completion_tokens temperature top_p n stop seed presence_penalty
frequency_penalty logit_bias logprobs top_logprobs user echo suffix best_of stream stream_options response_format
reasoning_effort verbosity tools tool_choice parallel_tool_calls service_tier store metadata extra_body modalities
prediction top_k min_p min_tokens repetition_penalty length_penalty ignore_eos stop_token_ids skip_special_tokens
spaces_between_special_tokens include_stop_str_in_output truncate_prompt_tokens prompt_logprobs use_beam_search
chat_template chat_template_kwargs add_generation_prompt continue_final_message add_special_tokens documents
allowed_token_ids bad_words logits_processors priority structured_outputs guided_json guided_regex guided_choice
guided_grammar regex ebnf json_schema separate_reasoning thinking enable_thinking thinking_budget typical_p tfs_z
mirostat mirostat_tau mirostat_eta repeat_penalty repeat_last_n n_predict n_probs cache_prompt grammar samplers
dynatemp_range dynatemp_exponent xtc_probability xtc_threshold dry_multiplier dry_base max_new_tokens min_new_tokens
max_length num_beams num_return_sequences early_stopping penalty_alpha no_repeat_ngram_size epsilon_cutoff
eta_cutoff details watermark decoder_input_details
"""
_KNOWN = frozenset(_NAMES.split())
"""Names that lm-eval, OpenAI's API or an inference server knows. Others are sent, too."""
_ALIKE = 0.8


def parse_gen_kwargs(text: str) -> dict[str, Any]:
    """Read ``key=value,key=value`` or a JSON object; values that look like numbers, booleans or lists become such.

    Raises:
        SpecificationError: the text is neither.
    """
    from lm_eval._cli.utils import key_val_to_dict, try_parse_json

    try:
        parsed = try_parse_json(text) if text.strip() else {}
        settings: dict[str, Any] = parsed if isinstance(parsed, dict) else key_val_to_dict(str(parsed))
    except ValueError as error:
        raise SpecificationError(f"gen_kwargs '{text}' cannot be read: {error}") from error
    return settings


def settings_of(given: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """Settings as text (:func:`parse_gen_kwargs`), by name, or none.

    Raises:
        SpecificationError: they are something else, or the text cannot be read.
    """
    if given is None:
        return {}
    if isinstance(given, str):
        return parse_gen_kwargs(given)
    if not isinstance(given, Mapping):
        raise SpecificationError(
            f"gen_kwargs is {given!r}; it must be a text such as 'temperature=0.6,top_p=1', or settings by name"
        )
    return dict(given)


def near_misses(settings: Iterable[str]) -> dict[str, str]:
    """Unknown names, each with the known name that it resembles."""
    unknown = [name for name in settings if name not in _KNOWN]
    found = {name: difflib.get_close_matches(_plain(name), sorted(_KNOWN), n=1, cutoff=_ALIKE) for name in unknown}
    return {name: near[0] for name, near in found.items() if near}


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def generation_fault(settings: Any) -> str | None:
    """Say what is wrong with generation settings; None if nothing is."""
    if not isinstance(settings, dict):
        return f"{settings!r} are no settings by name"
    if not all(isinstance(name, str) and name.strip() for name in settings):
        return "a setting has no name"
    until = settings.get("until")
    if not (until is None or isinstance(until, str) or _are_texts(until)):
        return f"until is {until!r}; it must be a text or a list of texts at which an answer stops"
    for name in ("max_gen_toks", "max_tokens"):
        value = settings.get(name, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            return f"{name} is {value!r}; it must be a whole number of at least 1"
    for name in ("temperature", "top_p"):
        value = settings.get(name, 0)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return f"{name} is {value!r}; it must be a number"
    try:
        json.dumps(settings, allow_nan=False)
    except (TypeError, ValueError) as error:
        return f"they cannot be sent: {error}"
    return None


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
