"""The description of a run in its results document, as lm-eval writes it, and the mark of a run that stopped early."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.versions import installed_version
from assay.results.document import ResultsDocument, RunConfig, ScoredSections
from assay.results.writing import BOOTSTRAP_ITERATIONS
from assay.tasks.model_args import lm_eval_model_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.results.document import AssayPart, Entries
    from assay.tasks.tokenizer import Tokenizer
    from assay.types import Specification, StoppedEarly


def whole_document(
    scored: ScoredSections,
    assay: AssayPart,
    specification: Specification,
    tokenizer: Tokenizer | None,
    *,
    model_args: Mapping[str, Any],
    task_hashes: Mapping[str, str],
    started: float,
    seconds: float,
) -> ResultsDocument:
    """The results document of a run.

    Args:
        scored: the sections computed from its samples.
        assay: what Assay adds.
        specification: what was run.
        tokenizer: the model's tokenizer, if the run uses one.
        model_args: the arguments that make lm-eval send the same requests.
        task_hashes: by task, the hash of its samples.
        started: Unix time at which the run began.
        seconds: how long it took.
    """
    from lm_eval.utils import hash_string, sanitize_model_name

    model, options = specification.model, specification.options
    system = options.system_instruction
    is_chat = model.endpoint == "chat" or options.apply_chat_template
    template = "" if model.endpoint == "chat" else None
    if is_chat and tokenizer is not None:
        template = tokenizer.chat_template.text
    return ResultsDocument(
        **msgspec.structs.asdict(scored),
        config=_config(specification, model_args),
        git_hash=None,
        date=started,
        pretty_env_info=f"Python {platform.python_version()}, {platform.platform()}",
        transformers_version=installed_version("transformers") or "N/A",
        lm_eval_version=installed_version("lm_eval") or "N/A",
        upper_git_hash=None,
        **_tokenizer_sections(tokenizer, model.max_length),
        task_hashes=task_hashes,
        model_source=lm_eval_model_name(model),
        model_name=model.model,
        model_name_sanitized=sanitize_model_name(model.model),
        system_instruction=system,
        system_instruction_sha=hash_string(system) if system else None,
        fewshot_as_multiturn=options.fewshot_as_multiturn if is_chat else None,
        chat_template=template,
        chat_template_sha=hash_string(template) if template else None,
        total_evaluation_time_seconds=str(seconds),
        assay=assay,
    )


def _config(specification: Specification, model_args: Mapping[str, Any]) -> RunConfig:
    options = specification.options
    return RunConfig(
        model=lm_eval_model_name(specification.model),
        model_args=model_args,
        batch_size=1,
        batch_sizes=[],
        device="cuda:0",
        use_cache=None,
        limit=options.limit,
        bootstrap_iters=BOOTSTRAP_ITERATIONS,
        gen_kwargs=options.gen_kwargs,
        random_seed=options.random_seed,
        numpy_seed=options.numpy_seed,
        torch_seed=options.torch_seed,
        fewshot_seed=options.fewshot_seed,
    )


def _tokenizer_sections(tokenizer: Tokenizer | None, max_length: int | None) -> dict[str, Any]:
    from assay.tasks.encoding import PromptEncoder

    if tokenizer is None or not (recorded := tokenizer.recorded):
        return {}
    return {**recorded, "max_length": PromptEncoder(tokenizer, max_length).longest}


def marked_stopped_early(scored: ScoredSections, stopped: StoppedEarly) -> ScoredSections:
    """Add to every displayed name how much was asked, so that nobody takes part of a run for a whole one.

    lm-eval's own ``n-samples`` shows it too: fewer ``effective`` than ``original`` samples.
    """
    groups = scored.groups

    def marked(entries: Entries) -> Entries:
        return {name: _marked(name, entry, scored, stopped) for name, entry in entries.items()}

    return msgspec.structs.replace(
        scored, results=marked(scored.results), groups=groups if groups is msgspec.UNSET else marked(groups)
    )


def _marked(name: str, entry: dict[str, Any], scored: ScoredSections, stopped: StoppedEarly) -> dict[str, Any]:
    members = [stopped.tasks[task] for task in scored.leaves(name) if task in stopped.tasks]
    counted, of = (sum(part) for part in zip(*members, strict=True)) if members else (0, 0)
    if counted >= of:
        return entry
    return {**entry, "alias": f"{entry.get('alias', name)} (stopped early: {counted} of {of})"}
