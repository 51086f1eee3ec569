"""A comparison of servers, token by token, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay._util.text import printable
from assay.identity.divergence.phases import NOTHING, Phase
from assay.identity.divergence.summary import EVIDENCE
from assay.identity.published_marks import beside_published_marks
from assay.identity.reading import Way

if TYPE_CHECKING:
    from assay.identity import Candidate, DivergenceReport
    from assay.identity.divergence.phases import Pattern
    from assay.identity.divergence.summary import Estimate
    from assay.identity.divergence.three_way import ThreeWay

_SHOWN = 3
_WEAKER = {
    Way.GREEDY_CHAT: "only its own answers are known, so each text was read up to the first token that differs",
    Way.ONE_BY_ONE: "a token beyond its twenty likeliest has no log-probability",
}


def divergence_text(report: DivergenceReport) -> str:
    """All candidates, one after another; a table of them where there are several."""
    parts = [_head(report)]
    if len(report.candidates) > 1:
        parts.append(_table(report))
    parts += [_candidate(each) for each in report.candidates]
    return "\n\n".join(parts)


def _head(report: DivergenceReport) -> str:
    texts = report.reference.texts
    tokens = sum(len(text.positions) for text in texts)
    failed = f"; {len(report.failed)} more failed: {report.failed[0].message}" if report.failed else ""
    return printable(f"reference  {report.reference.name}: {len(texts)} answers, {tokens} tokens{failed}", 1000)


def _table(report: DivergenceReport) -> str:
    width = max(len(each.name) for each in report.candidates)
    rows = [f"{'candidate':<{max(width, 9)}}  mean KL   |Δ|      same top  verdict"]
    for each in report.candidates:
        size = each.summary.absolute_delta
        delta = "?" if size is None else f"{size.value:.2g}"
        rows.append(
            f"{printable(each.name):<{max(width, 9)}}  {each.summary.divergence.value:<8.2g}  "
            f"{delta:<7}  {each.summary.same_top:<8.1%}  {each.verdict or 'measured'}"
        )
    return "\n".join(rows)


def _candidate(each: Candidate) -> str:
    found = each.summary
    lines = [
        f"{'MEASURED' if each.verdict is None else each.verdict.upper()}  {each.name}: {each.reason}",
        f"  read by {each.way}" + (f": {_WEAKER[Way(each.way)]}" if each.way in _WEAKER else ""),
        (
            f"  mean KL {_interval(found.divergence)} nats, at most {found.divergence_at_most:.2g} if unlisted tokens "
            f"move no more than listed ones; {beside_published_marks(found.divergence.value)}"
        ),
    ]
    if found.delta is not None and found.absolute_delta is not None:
        lines.append(
            f"  log-probability of the token: Δ {_interval(found.delta)}, |Δ| {_interval(found.absolute_delta)} nats"
        )
    lines.append(
        f"  same likeliest token at {found.same_top:.1%} of {found.tokens} positions; {found.overlap:.1%} of the lists "
        "in common"
    )
    lines.append(f"  {_flips(each)}")
    lines.append(f"  {_where(found.pattern, each)}")
    if each.noise is not None:
        lines.append(f"  {_noise(each.noise)}")
    if each.failed:
        lines.append(f"  {len(each.failed)} answers could not be read: {each.failed[0].message}")
    for text in sorted(each.texts, key=lambda one: -max((p.divergence for p in one.positions), default=0.0))[:_SHOWN]:
        if found.divergence.value >= NOTHING and text.positions:
            worst = max(text.positions, key=lambda one: one.divergence)
            tops = f"likeliest {worst.reference_top!r}, with the candidate {worst.candidate_top!r}"
            lines.append(f"    {worst.divergence:.2g} at token {worst.index} of {text.name!r}: {tops}")
    return "\n".join(printable(line, 1000) for line in lines)


def _flips(each: Candidate) -> str:
    found = each.summary
    if not found.diverged:
        return "no answer would go on otherwise"
    evidence = (
        f"{found.evident} of them at a margin above {EVIDENCE} nats, which noise hardly makes"
        if found.evident
        else f"none at a margin above {EVIDENCE} nats: noise turns such tokens around, too, and so they acquit no one"
    )
    return f"{found.diverged} of {found.texts} answers would go on otherwise, {evidence}"


def _where(pattern: Pattern, each: Candidate) -> str:
    times = "" if pattern.ratio is None else f" ({pattern.ratio:.1f} times the error elsewhere)"
    found = each.summary
    said = {
        Phase.NONE: "no error beyond rounding",
        Phase.PROMPT: f"{found.other_prompts} of {found.texts} prompts have another number of tokens: template, system "
        "prompt, tokenizer or BOS"
        if found.other_prompts
        else f"the first token has the largest error{times}: template, system prompt, tokenizer or BOS",
        Phase.EVEN: "the error is even over the positions: weights, precision or kernels",
        Phase.FROM: f"the error begins at token {pattern.start}{times}",
        Phase.BLOCKS: f"the error is at multiples of {pattern.block} tokens{times}: the cache's blocks",
        Phase.GROWING: f"the error grows with the position{times}: cache or positions",
        Phase.UNDER_LOAD: f"the error is {pattern.ratio or 0:.1f} times larger while other requests are answered",
        Phase.UNKNOWN: "where the error is cannot be told from so few answers",
    }[pattern.phase]
    return f"{said}, and only in answers that it generates itself, not in reading" if pattern.in_decoding else said


def _noise(noise: ThreeWay) -> str:
    def ratio(value: float | None) -> str:
        return "?" if value is None else f"{value:.2f}"

    return (
        f"beside the noise reference (mean KL {noise.noise:.2g}): σ-ratio {ratio(noise.sigma_ratio)}, Bhattacharyya "
        f"{noise.bhattacharyya:.3f}, L∞ ratio {ratio(noise.largest_ratio)}, L2 ratio {ratio(noise.square_ratio)}"
    )


def _interval(interval: Estimate) -> str:
    return f"{interval.value:.2g} [{interval.low:.2g}, {interval.high:.2g}]"
