"""The causes of low scores that a triage knows, and their titles. A new one begins here."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """Why a run may have scored low. A closed set, so that reports can count them."""

    SERVER_FAILURES = "server_failures"
    SCORER_FAILURES = "scorer_failures"
    """The task's own scorer raised or took too long."""
    WRONG_MODEL = "wrong_model"
    CHAT_TEMPLATE_MISSING = "chat_template_missing"
    CHAT_TEMPLATE_DOUBLED = "chat_template_doubled"
    BOS_DOUBLED = "bos_doubled"
    BOS_MISSING = "bos_missing"
    SYSTEM_PROMPT_IGNORED = "system_prompt_ignored"
    INPUT_CUT = "input_cut"
    """The server reads long prompts only in part."""
    TOKENIZER_CHANGED = "tokenizer_changed"
    TASK_CHANGED = "task_changed"
    DATA_CHANGED = "data_changed"
    BASELINE_PARTIAL = "baseline_partial"
    """Not a fault: the baseline's run was stopped early or limited."""
    PROMPTS_CHANGED = "prompts_changed"
    LM_EVAL_CHANGED = "lm_eval_changed"
    HARNESS_CHANGED = "harness_changed"
    """The baseline's own answers score less now than they did."""
    NOT_GREEDY = "not_greedy"
    """Answers are sampled: scores differ from run to run."""
    TRUNCATED = "truncated"
    STOPPED_IN_REASONING = "stopped_in_reasoning"
    """A stop string ended the reasoning."""
    STOPPED_EARLY = "stopped_early"
    """A stop string ended the text before the answer."""
    REASONING_LEAKED = "reasoning_leaked"
    """The content contains reasoning."""
    ANSWER_IN_REASONING = "answer_in_reasoning"
    """The content is empty, and the reasoning contains the answer."""
    EMPTY = "empty"
    TEXT_ALTERED = "text_altered"
    """The text's characters were changed after the model wrote it."""
    PROMPT_ECHOED = "prompt_echoed"
    EXTRACTION_MISSED = "extraction_missed"
    """The text states the right answer, but the filter extracted something else, or nothing."""
    RUN_ON = "run_on"
    """The text continues after the answer, for example with a question of its own, and the filter read that."""
    NOT_READ = "not_read"
    """The filter finds nothing in complete answers, whose form is not a known one."""
    OTHER_FORM = "other_form"
    """Answers that lost their score look otherwise than the baseline's."""
    SWAPPED = "swapped"
    """Answers are the baseline's answers to other documents."""
    SAME_ANSWER = "same_answer"
    """One answer is given to far more documents than it is right for."""
    REPETITIVE = "repetitive"
    GIBBERISH = "gibberish"
    WRONG_LANGUAGE = "wrong_language"
    REFUSED = "refused"
    ONE_ENDPOINT = "one_endpoint"
    ONE_TIME_SPAN = "one_time_span"
    ONE_TASK = "one_task"
    ONE_LENGTH_BAND = "one_length_band"
    CHANCE_LEVEL = "chance_level"
    BELOW_CHANCE = "below_chance"
    """Significantly fewer answers are right than guessing gives: they are probably misread."""
    UNEXPLAINED = "unexplained"
    """A loss against the baseline in answers that are not sound, for no reason that is known."""
    ANSWERS_WORSE = "answers_worse"
    """The model answers worse than in the baseline, for no reason in the harness."""


TITLES: dict[Cause, str] = {
    Cause.SERVER_FAILURES: "the server failed",
    Cause.SCORER_FAILURES: "the task's scorer failed",
    Cause.WRONG_MODEL: "another model answers",
    Cause.CHAT_TEMPLATE_MISSING: "the model's chat template is not applied",
    Cause.CHAT_TEMPLATE_DOUBLED: "the chat template is applied twice, adds text of its own, or is another one",
    Cause.BOS_DOUBLED: "the BOS token is doubled",
    Cause.BOS_MISSING: "the BOS token is missing",
    Cause.SYSTEM_PROMPT_IGNORED: "the system prompt is ignored",
    Cause.INPUT_CUT: "the server cuts long prompts off",
    Cause.TOKENIZER_CHANGED: "prompts are split into other tokens than in the baseline",
    Cause.TASK_CHANGED: "the task or its settings are not the baseline's",
    Cause.DATA_CHANGED: "the data is not the baseline's",
    Cause.BASELINE_PARTIAL: "the baseline holds a part of the documents",
    Cause.PROMPTS_CHANGED: "the prompts are not the baseline's",
    Cause.LM_EVAL_CHANGED: "lm-eval is of another version than the baseline's",
    Cause.HARNESS_CHANGED: "the harness scores otherwise than it did for the baseline",
    Cause.NOT_GREEDY: "answers are sampled",
    Cause.TRUNCATED: "answers are cut off at the token limit",
    Cause.STOPPED_IN_REASONING: "a stop string ends the reasoning",
    Cause.STOPPED_EARLY: "a stop string ends answers too early",
    Cause.REASONING_LEAKED: "reasoning stands in the answers",
    Cause.ANSWER_IN_REASONING: "the content is empty, the answer stands in the reasoning",
    Cause.EMPTY: "answers are empty",
    Cause.TEXT_ALTERED: "answers are altered after the model has written them",
    Cause.PROMPT_ECHOED: "answers repeat the prompt",
    Cause.EXTRACTION_MISSED: "right answers are not extracted",
    Cause.RUN_ON: "texts run on after the answer, and the wrong part is extracted",
    Cause.NOT_READ: "answers hold nothing that the filter takes",
    Cause.OTHER_FORM: "answers come in another form than the baseline's",
    Cause.SWAPPED: "answers belong to other prompts",
    Cause.SAME_ANSWER: "one answer is given to many documents",
    Cause.REPETITIVE: "texts repeat themselves without end",
    Cause.GIBBERISH: "texts are gibberish",
    Cause.WRONG_LANGUAGE: "texts are in another language or script than the questions",
    Cause.REFUSED: "the model refuses to answer",
    Cause.ONE_ENDPOINT: "one endpoint answers worse than the others",
    Cause.ONE_TIME_SPAN: "one stretch of time carries the loss",
    Cause.ONE_TASK: "one task carries the loss",
    Cause.ONE_LENGTH_BAND: "prompts of one length carry the loss",
    Cause.CHANCE_LEVEL: "the score is what guessing gives",
    Cause.BELOW_CHANCE: "the score is below what guessing gives",
    Cause.UNEXPLAINED: "the loss is unexplained",
    Cause.ANSWERS_WORSE: "the answers themselves are worse",
}
"""The causes as text."""


FAULTS = frozenset(
    {
        Cause.WRONG_MODEL,
        Cause.CHAT_TEMPLATE_MISSING,
        Cause.CHAT_TEMPLATE_DOUBLED,
        Cause.BOS_DOUBLED,
        Cause.BOS_MISSING,
        Cause.SYSTEM_PROMPT_IGNORED,
        Cause.TOKENIZER_CHANGED,
        Cause.HARNESS_CHANGED,
    }
)
"""Faults of server or harness that are reported even if every check passes."""
