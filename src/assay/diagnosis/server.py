"""Detects causes at the server: failures, another model, and changes to the prompt before the model sees it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from assay.diagnosis.causes import Cause
from assay.diagnosis.findings import Confidence
from assay.diagnosis.judging import (
    Found,
    Suspicion,
    as_remark,
    examples_of,
    is_harmless,
    judge,
    judge_all,
    mean_score,
    percent,
)
from assay.diagnosis.texts import Sign
from assay.results.check_results import Verdict
from assay.types import FailureCause

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.diagnosis.evidence import Evidence
    from assay.diagnosis.facts import SampleFacts
    from assay.results.document import ResultsDocument

    _Changes = Sequence[tuple[SampleFacts, int]]
    """Prompts, each with how many tokens more it has than in the baseline."""

_FAILURES_ALONE = 0.6
"""Weight of failures if no score is missing."""
_FAILED_SHARE = 0.01
_FEWEST_PAIRS = 5
_CONSTANT = 0.95
"""Share of prompts whose token counts must differ by the same number."""
_TOKENIZER_SHARE = 0.2
_MARKED_SHARE = 0.1
_USUAL_NAME_SHARE = 0.5
"""If more than this share of the baseline's replies names another model too, the server always does so."""
_CHARACTERS_A_TOKEN = 4.0
_SPARED = 0.05
"""Share of the prompts beyond the length where a server cuts that may have kept all their tokens: counts vary a bit."""
_FEWEST_COUNTED = 20
_FEWEST_CUT = 5
_LONGER = 1.1
"""How much longer, in characters, the longest of the cut prompts must be than the shortest."""
_FAILURE_ADVICE = {
    FailureCause.CONTEXT_TOO_LONG: "serve the model with a longer context, or lower max_gen_toks",
    FailureCause.TIMED_OUT: "raise --request-timeout, or lower --concurrency",
    FailureCause.RATE_LIMITED: "lower --concurrency, or raise the server's limit",
    FailureCause.UNAUTHORISED: "check the API key",
    FailureCause.UNREADABLE_REPLY: "read the failures' messages; what answers sends replies of another shape",
    FailureCause.BAD_REQUEST: "read the server's message; it refuses a field or a value that the task sends",
}


def server_failures(evidence: Evidence) -> Iterator[Found]:
    """Requests without an answer. They have no score, so they make the score less certain, not lower."""
    failed = [sample for sample in evidence.facts if sample.failure not in (None, FailureCause.UNSCORABLE)]
    causes = Counter(sample.failure for sample in failed if sample.failure is not None)
    if causes:
        advice = _FAILURE_ADVICE.get(causes.most_common(1)[0][0], "read the server's log for the time of the run")
        if any(cause.is_transient for cause in causes):
            advice += "; the same command asks only the failed ones again"
        yield _failures(evidence, Cause.SERVER_FAILURES, failed, advice)
    unscorable = [sample for sample in evidence.facts if sample.failure is FailureCause.UNSCORABLE]
    if unscorable:
        yield _failures(
            evidence, Cause.SCORER_FAILURES, unscorable, "read the failures' messages; the task's own code is at fault"
        )


def _failures(evidence: Evidence, cause: Cause, failed: Sequence[SampleFacts], advice: str) -> Found:
    share = len(failed) / len(evidence.facts)
    words = ", ".join(
        f"{count} {name}" for name, count in Counter(sample.failure for sample in failed).most_common() if name
    )
    by_endpoint = Counter(sample.endpoint for sample in failed if sample.endpoint)
    where = f"; by endpoint: {', '.join(f'{url} {count}' for url, count in by_endpoint.most_common())}"
    suspicion = Suspicion(
        cause=cause,
        evidence=f"{percent(len(failed), len(evidence.facts))} samples have no score: {words}"
        + (where if by_endpoint else ""),
        advice=advice,
        affected=failed,
        of=len(evidence.facts),
        confidence=Confidence.CERTAIN,
    )
    found = judge(evidence, suspicion)
    invalid = any(check.verdict is Verdict.INVALID and check.failed for check in evidence.unmet)
    loss = evidence.loss
    weight = min(1.0, share / loss.size) if loss.is_real else _FAILURES_ALONE
    finding = msgspec.structs.replace(
        found.finding,
        is_cause=invalid or share >= _FAILED_SHARE,
        weight=1.0 if invalid else weight,
        examples=examples_of(failed, lambda sample: str(sample.failure)),
    )
    return found._replace(finding=finding)


def wrong_model(evidence: Evidence) -> Iterator[Found]:
    """Replies that name another model than the one asked for."""
    asked = evidence.document.model_name or ""
    named = Counter(sample.model for sample in evidence.scored if sample.model)
    strangers = {name: count for name, count in named.items() if _bare(name) != _bare(asked)}
    usual = evidence.in_baseline(lambda twin: twin.model in strangers)
    if not strangers or (usual is not None and usual > _USUAL_NAME_SHARE):
        return
    affected = [sample for sample in evidence.scored if sample.model in strangers]
    names = ", ".join(f"{name!r} ({count})" for name, count in strangers.items())
    listed = {_bare(name) for name in _served(evidence.document)}
    # A server with one model may accept any name and reply with its own; that is no fault.
    is_alias = len(strangers) == 1 and len(affected) == len(evidence.scored) and _bare(asked) not in listed
    is_other = evidence.baseline is not None and evidence.baseline.has_facts
    yield judge_all(
        evidence,
        Suspicion(
            cause=Cause.WRONG_MODEL,
            evidence=f"asked for {asked!r}, replies name {names}",
            advice="check which weights, adapter or route the server has under that name",
            affected=affected,
            of=len(evidence.scored),
            confidence=Confidence.LIKELY if is_alias and not is_other else Confidence.CERTAIN,
            may_be_cause=not is_alias or is_other or bool(evidence.unmet),
        ),
    )


def other_server(evidence: Evidence) -> Iterator[Found]:
    """The baseline asked for another model, or its server listed others."""
    now, before = evidence.document, None if evidence.baseline is None else evidence.baseline.document
    if before is None:
        return
    differences = []
    if before.model_name != now.model_name:
        differences.append(f"asked for {now.model_name!r}, the baseline for {before.model_name!r}")
    listed = [sorted(_served(document)) for document in (before, now)]
    if all(listed) and listed[0] != listed[1]:
        differences.append(f"the server lists {', '.join(listed[1])}; the baseline's listed {', '.join(listed[0])}")
    if differences:
        suspicion = Suspicion(
            cause=Cause.WRONG_MODEL,
            evidence="; ".join(differences),
            advice="make sure that this is the model that you mean to compare",
            affected=evidence.scored,
            of=len(evidence.scored),
            confidence=Confidence.POSSIBLE,
        )
        yield as_remark(judge_all(evidence, suspicion))


def probed(evidence: Evidence) -> Iterator[Found]:
    """Faults of templates and BOS tokens that the probe found before the run."""
    baseline = None if evidence.baseline is None else evidence.baseline.document
    before = {} if baseline is None else baseline.additions.probe_findings
    seen = evidence.document.additions.probe_findings
    for name, bad, cause in (
        ("chat_template", "no", Cause.CHAT_TEMPLATE_MISSING),
        ("bos_doubled", "yes", Cause.BOS_DOUBLED),
    ):
        finding = seen.get(name, {})
        if finding.get("seen") != bad or before.get(name, {}).get("seen") == bad:
            continue
        if name == "chat_template" and evidence.document.provenance.model.get("endpoint", "chat") != "chat":
            continue
        yield judge_all(
            evidence, _about_prompts(evidence, cause, f"the probe saw: {finding.get('evidence', '')}", evidence.scored)
        )


def prompt_tokens(evidence: Evidence) -> Iterator[Found]:
    """Equal prompts that have more or fewer tokens than in the baseline, by the server's count."""
    counted = [
        (sample, sample.prompt_tokens - twin.facts.prompt_tokens)
        for sample, twin in evidence.pairs
        if twin.facts is not None
        and sample.prompt_hash == twin.facts.prompt_hash
        and sample.prompt_tokens is not None
        and twin.facts.prompt_tokens is not None
    ]
    changed = [(sample, more) for sample, more in counted if more]
    if len(counted) < _FEWEST_PAIRS or not changed:
        return
    affected = [sample for sample, _ in changed]
    if _are_system_prompts(counted):
        words = f"{percent(len(changed), len(counted))} equal prompts have fewer tokens than in the baseline, by the "
        words += f"length of their system prompts ({_span(changed)})"
        yield judge_all(evidence, _about_prompts(evidence, Cause.SYSTEM_PROMPT_IGNORED, words, affected))
        return
    if _are_cut(counted):
        words = f"{percent(len(changed), len(counted))} equal prompts, the longest ones, have fewer tokens than in the "
        words += f"baseline ({_span(changed)}), {max(sample.prompt_tokens or 0 for sample in affected)} at most"
        yield judge(evidence, _about_prompts(evidence, Cause.INPUT_CUT, words, affected))
        return
    common, times = Counter(more for _, more in counted).most_common(1)[0]
    if common and times >= _CONSTANT * len(counted):
        cause = _cause_of(common, evidence)
        words = f"{percent(times, len(counted))} equal prompts have {abs(common)} "
        words += f"{'token' if abs(common) == 1 else 'tokens'} {'more' if common > 0 else 'fewer'} than in the baseline"
        yield judge_all(evidence, _about_prompts(evidence, cause, words, affected))
        return
    by_turns = {(sample.messages, more) for sample, more in counted}
    turns = {messages for messages, _ in by_turns}
    if len(by_turns) == len(turns) > 1 and all(more < 0 for _, more in by_turns):
        words = f"equal prompts have fewer tokens than in the baseline, {min(more for _, more in by_turns)} at most, "
        words += "by the number of their turns"
        yield judge_all(evidence, _about_prompts(evidence, Cause.CHAT_TEMPLATE_MISSING, words, affected))
    elif len(changed) >= _TOKENIZER_SHARE * len(counted):
        words = f"{percent(len(changed), len(counted))} equal prompts have other numbers of tokens than in the baseline"
        words += f" ({_span(changed)})"
        yield judge_all(evidence, _about_prompts(evidence, Cause.TOKENIZER_CHANGED, words, affected))


def _span(changed: _Changes) -> str:
    """The least and the greatest change, as text."""
    least, most = min(more for _, more in changed), max(more for _, more in changed)
    return f"{least:+d}" if least == most else f"{least:+d} to {most:+d}"


def _are_system_prompts(counted: _Changes) -> bool:
    """Whether each prompt lacks about as many tokens as its system message has, the same number for equal messages.

    Subtasks of a group have system messages of their own, so the number may differ from one to the next.
    """
    by_message: dict[tuple[str, int], Counter[int]] = {}
    for sample, more in counted:
        by_message.setdefault((sample.task, sample.system_characters), Counter())[more] += 1
    judged = []
    for (_, characters), changes in by_message.items():
        (more, times), total = changes.most_common(1)[0], changes.total()
        is_constant = times >= _CONSTANT * total
        expected = characters / _CHARACTERS_A_TOKEN
        judged.append(is_constant and (0.5 <= -more / expected <= 2.5 if expected else not more))
    return all(judged) and any(characters for _, characters in by_message)


def _are_cut(counted: _Changes) -> bool:
    """Whether exactly the prompts beyond some length have lost tokens, or what is left of them is equally long."""
    if any(more > 0 for _, more in counted):
        return False
    changes = [more for _, more in counted if more]
    left = {sample.prompt_tokens for sample, more in counted if more}
    if len(changes) >= _FEWEST_CUT and len(left) == 1 < len(set(changes)):
        return True
    before = sorted(((sample.prompt_tokens or 0) - more, more) for sample, more in counted)
    shortest_cut = min(length for length, more in before if more)
    kept = [more for length, more in before if length > shortest_cut]
    return kept.count(0) <= _SPARED * len(kept) and before[0][1] == 0


def cut_at_one_length(evidence: Evidence) -> Iterator[Found]:
    """The longest prompts, though of different lengths, all have the same number of tokens: the server cut them."""
    counted = [sample for sample in evidence.scored if sample.prompt_tokens and sample.prompt_characters]
    if len(counted) < _FEWEST_COUNTED:
        return
    most = max(sample.prompt_tokens or 0 for sample in counted)
    affected = [sample for sample in counted if sample.prompt_tokens == most]
    others = [sample for sample in counted if sample.prompt_tokens != most]
    lengths = sorted(sample.prompt_characters for sample in affected)
    before = evidence.in_baseline(lambda twin: twin.prompt_tokens == most)
    if len(affected) < _FEWEST_CUT or not others or lengths[-1] < _LONGER * lengths[0]:
        return
    if max(sample.prompt_characters for sample in others) > lengths[0] * _LONGER or (before or 0) > _SPARED:
        return
    words = (
        f"{percent(len(affected), len(counted))} prompts, the longest ones ({lengths[0]} to {lengths[-1]} characters), "
    )
    words += f"have exactly {most} tokens by the server's count"
    yield judge(evidence, _about_prompts(evidence, Cause.INPUT_CUT, words, affected, Confidence.LIKELY))


def template_markers(evidence: Evidence) -> Iterator[Found]:
    """Answers with turns of the user, or with a chat template's markers."""
    marked = [sample for sample in evidence.generated if _is_marked(sample)]
    share = len(marked) / len(evidence.generated) if evidence.generated else 0.0
    if share - (evidence.in_baseline(_is_marked) or 0.0) < _MARKED_SHARE:
        return
    words = (
        f"{percent(len(marked), len(evidence.generated))} answers hold marks of a chat template or turns of the user"
    )
    words += f"; they score {mean_score(marked):.2f}"
    # In a chat no answer may contain them, not even a right one. Plain text may continue with another turn.
    is_chat = any(sample.messages for sample in marked)
    affected = [sample for sample in marked if (sample.score or 0.0) < 1] if is_chat else marked
    found = judge(evidence, _about_prompts(evidence, Cause.CHAT_TEMPLATE_MISSING, words, affected, Confidence.LIKELY))
    yield as_remark(found) if not is_chat and is_harmless(evidence, marked) else found


def _is_marked(sample: SampleFacts) -> bool:
    return Sign.TEMPLATE_MARKERS in sample.signs


def _cause_of(more: int, evidence: Evidence) -> Cause:
    if more == 1:
        return Cause.BOS_DOUBLED
    if more == -1:
        return Cause.BOS_MISSING
    if more > 0:
        return Cause.CHAT_TEMPLATE_DOUBLED
    is_chat = any(sample.messages for sample in evidence.facts)
    return Cause.CHAT_TEMPLATE_MISSING if is_chat else Cause.TOKENIZER_CHANGED


_ADVICE = {
    Cause.BOS_DOUBLED: "let either the chat template or the tokenizer add BOS, not both (add_special_tokens)",
    Cause.BOS_MISSING: "let the tokenizer add BOS again (add_special_tokens, or the chat template)",
    Cause.CHAT_TEMPLATE_MISSING: "start the server with the model's chat template (--chat-template)",
    Cause.CHAT_TEMPLATE_DOUBLED: "look at the rendered prompt: template applied twice, another model's, or a "
    "default system prompt",
    Cause.SYSTEM_PROMPT_IGNORED: "use a chat template that has a place for the system message",
    Cause.INPUT_CUT: "raise the server's context length, or switch off its truncation of prompts",
    Cause.TOKENIZER_CHANGED: "compare the tokenizer files of both servers",
}


def _about_prompts(
    evidence: Evidence,
    cause: Cause,
    words: str,
    affected: Sequence[SampleFacts],
    confidence: Confidence = Confidence.CERTAIN,
) -> Suspicion:
    return Suspicion(
        cause=cause,
        evidence=words,
        advice=f"{_ADVICE[cause]}; 'assay probe' shows what the server does",
        affected=affected,
        of=len(evidence.scored),
        confidence=confidence,
    )


def _bare(name: str) -> str:
    """A model's name without folder, revision, tag and file type, which servers may add or remove."""
    last = name.rstrip("/").rpartition("/")[2].partition("@")[0].lower()
    return last.removesuffix(":latest").removesuffix(".gguf")


def _served(document: ResultsDocument) -> list[str]:
    """The names of the models that the server listed before the run."""
    server = document.provenance.server
    return [] if server is None else [model.id for model in server.models]
