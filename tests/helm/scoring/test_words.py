from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.helm.scoring import words
from assay.helm.scoring.scorer import require_word_tokenizer
from assay.helm.scoring.words import word_tokens

pytest.importorskip("nltk")

CONTRACTIONS = st.sampled_from(
    ["cannot", "CanNot", "gonna", "wanna", "gotta", "lemme", "g\u0131mme", "more'n", "'tis", "'Twas", "d'ye", "whatcha"]
)
CLITICS = st.sampled_from(["don't", "I'll", "it's", "dogs'", "'s", "''", "'em", "rock'n'roll", "we'VE", "o'clock"])
ENDS = st.sampled_from([".", "...", "?", "!", '."', ".)", "Mr.", "U.S.", "3.5", "e.g.", "a.b", ". B", "?)", ".\n"])
MARKS = st.text("\"'`«»“”‘’„:,;@#$%&\u2012\u2013\u2014\u2015?!*()[]{}<>-. \n\t\u00a0ab1", max_size=5)
PIECES = st.sampled_from(["the", "a", "1,000", "x:y"]) | CONTRACTIONS | CLITICS | ENDS | MARKS | st.text(max_size=3)
TEXTS = st.lists(PIECES, max_size=10).flatmap(lambda pieces: st.sampled_from([" ".join(pieces), "".join(pieces)]))


def nltk_tokens(text: str) -> list[str]:
    from nltk.tokenize import word_tokenize

    require_word_tokenizer()
    return list(word_tokenize(text))


@settings(max_examples=500, deadline=None)
@given(TEXTS)
def test_tokens_are_nltks(text: str) -> None:
    expected = nltk_tokens(text)
    assert word_tokens(text) == expected


@pytest.mark.oracle
def test_tokens_of_real_answers_are_nltks(oracles_dir: Path) -> None:
    state = json.loads((oracles_dir / "helm/api_long_gen_perturbed/scenario_state.json").read_bytes())
    for request in state["request_states"]:
        for completion in request["result"]["completions"]:
            assert word_tokens(completion["text"]) == nltk_tokens(completion["text"])


def test_every_rule_of_this_nltk_is_known() -> None:
    require_word_tokenizer()
    rules = words._rules()
    assert rules is not None
    assert [rule.expression.pattern for rule in (*rules.opening, *rules.closing) if rule.triggers is None] == []


def test_another_nltk_does_it_all_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_rules", lambda: None)
    assert word_tokens("I can't. Really!") == nltk_tokens("I can't. Really!")
