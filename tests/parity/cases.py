"""Which tasks are compared: all whose data is commonly at hand, on each endpoint that can ask them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from assay.tasks.index import lm_eval_tasks_folder
from tests.parity.differential import Batch

GENERATIVE = (
    # gsm8k
    "gsm8k",
    "gsm8k_cot",
    "gsm8k_cot_zeroshot",
    "gsm8k_cot_llama",
    "gsm8k_cot_self_consistency",
    "gsm8k_llama",
    # bbh
    "bbh_cot_fewshot",
    "bbh_cot_zeroshot",
    "bbh_fewshot",
    "bbh_zeroshot",
    # mmlu and mmlu_pro
    "mmlu_generative",
    "mmlu_flan_cot_zeroshot",
    "mmlu_flan_cot_fewshot",
    "mmlu_flan_n_shot_generative",
    "mmlu_pro",
    "mmlu_pro_llama",
    "score_robustness_mmlu_pro",
    # others
    "ifeval",
    "leaderboard_ifeval",
    "truthfulqa_gen",
    "mgsm_direct",
    "mgsm_cot_native",
    "mgsm_en_cot_en",
    "mgsm_direct_es_spanish_bench",
    "ja_leaderboard_mgsm",
    "arc_challenge_chat",
    "arc_challenge_llama",
    "boolq-seq2seq",
    "super_glue-boolq-t5-prompt",
    "drop_without_training",
    "nq_open_without_training",
)
SCORED_BY_LOGLIKELIHOOD = (
    "mmlu",
    "mmlu_continuation",
    "mmlu_flan_n_shot_loglikelihood",
    "leaderboard_bbh",
    "leaderboard_mmlu_pro",
    "arc_easy",
    "arc_challenge",
    "hellaswag",
    "winogrande",
    "boolq",
    "piqa",
    "openbookqa",
    "commonsense_qa",
    "truthfulqa_mc1",
    "truthfulqa_mc2",
    "lambada_openai",
    "lambada_openai_cloze_yaml",
    "wikitext_without_training",
)
GENERATIVE_BY_COMPLETIONS = (
    "gsm8k",
    "gsm8k_cot",
    "bbh_cot_fewshot",
    "mmlu_pro",
    "ifeval",
    "truthfulqa_gen",
    "mgsm_direct",
    "drop_without_training",
)
RUNNING_CODE = ("humaneval", "humaneval_instruct", "humaneval_64", "mbpp", "mbpp_instruct")
WITH_OTHER_SETTINGS = ("gsm8k_cot", "bbh_fewshot_navigate", "mmlu_pro_law", "arc_challenge_chat", "gsm8k_cot_llama")
WITH_EXAMPLES = ("hellaswag", "winogrande", "piqa", "arc_easy", "boolq", "mmlu_abstract_algebra", "openbookqa")

# Their training or validation splits are not in the published extracts; lm-eval asks for them even at 0 shots.
_WITHOUT_TRAINING = {
    "drop_without_training": ("drop/default.yaml", "training_split: null"),
    "nq_open_without_training": ("nq_open/nq_open.yaml", "training_split: null"),
    "wikitext_without_training": ("wikitext/wikitext.yaml", "training_split: null\nvalidation_split: null"),
}


def batches(tokenizer: str, only: Sequence[str] = ()) -> Iterator[Batch]:
    """All that is compared, or of it the tasks named in `only`; `tokenizer` is a folder."""
    whole = (
        Batch(tasks=GENERATIVE, endpoint="chat"),
        Batch(tasks=WITH_OTHER_SETTINGS, endpoint="chat", num_fewshot=2, fewshot_as_multiturn=False),
        Batch(tasks=GENERATIVE_BY_COMPLETIONS, endpoint="completions"),
        Batch(tasks=RUNNING_CODE, endpoint="chat", runs_code=True),
        Batch(tasks=RUNNING_CODE, endpoint="completions", runs_code=True),
        Batch(tasks=SCORED_BY_LOGLIKELIHOOD, endpoint="completions", tokenizer=tokenizer),
        Batch(tasks=WITH_EXAMPLES, endpoint="completions", tokenizer=tokenizer, num_fewshot=2),
    )
    for batch in whole:
        tasks = tuple(task for task in batch.tasks if not only or task in only)
        if tasks:
            yield Batch(**{**vars(batch), "tasks": tasks})


def write_own_tasks(folder: Path) -> None:
    """Write the task files of the comparison's own, which include lm-eval's."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (path, changes) in _WITHOUT_TRAINING.items():
        text = f"include: {lm_eval_tasks_folder() / path}\ntask: {name}\n{changes}\n"
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
