"""Signs of a broken text are seen, and ordinary answers show none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.diagnosis.extraction import Where, missed_answer
from assay.diagnosis.texts import Sign, is_in_another_language, signs_of

PROMPT = (
    "Question: A man buys three apples for the price of two and sells them at the market. How many of them does he "
    "have to sell if he wants to have twice as much money in the end as he had when he came there in the morning?"
)
ENGLISH = (
    "First we look at how much he has in the morning, then at what he pays for the apples. If he sells all of them for "
    "the price of one each, he will have as much as before and a bit more, so the answer is four of them. "
)
GERMAN = (
    "Zuerst sehen wir uns an, wieviel Geld der Mann am Morgen besitzt, danach den Preis der Früchte auf diesem Markt. "
    "Wenn er alle verkauft, besitzt er genauso viel Geld wie vorher, und noch etwas mehr, also lautet das Ergebnis "
    "vier, was niemanden erstaunt."
)
RUBBISH = " ".join(f"слоvo{letter} abв{letter} и{letter}t" for letter in "abcdefghijklmnopqrstuvwxyz")
BROKEN = [
    (ENGLISH + "So there are four." * 40, Sign.REPETITIVE),
    ("\n".join(["Step: add the next one and check."] * 30), Sign.REPETITIVE),
    ("!" * 200, Sign.REPETITIVE),
    ("the " * 60, Sign.REPETITIVE),
    ("\ufffd\ufffd ab \ufffd cd \ufffd", Sign.GIBBERISH),
    ("слоvo abвгd wоrлd heлlo плюs мinus ещё oдиn", Sign.GIBBERISH),
    (GERMAN, Sign.WRONG_LANGUAGE),
    (
        "首先我们来看看他早上有多少钱,然后看他买苹果花了多少钱,如果他把所有的苹果都卖掉,那么他就会有和以前一样多的钱。",
        Sign.WRONG_LANGUAGE,
    ),
    ("I'm sorry, but I can't help with that.", Sign.REFUSED),
    ("As an AI language model, I have no opinion.", Sign.REFUSED),
    ("I'm sorry", Sign.REFUSED),
    ("Answering this is something that I must decline to do, so I will not help with it.", Sign.REFUSED),
    ("Your message was blocked by our safety system.", Sign.REFUSED),
    ("Das kann ich leider nicht beantworten.", Sign.REFUSED),
    ("Je suis désolé, mais je ne peux pas répondre.", Sign.REFUSED),
    ("我认为答案很明显，应该仔细考虑", Sign.WRONG_LANGUAGE),
    ("Das ist nicht die Antwort auf die Frage, und mit dem Rest wird es auch nichts.", Sign.WRONG_LANGUAGE),
    ("Il prezzo della mela non è quello che si paga per una pera nel mercato.", Sign.WRONG_LANGUAGE),
    ("Ответ на этот вопрос очевиден", Sign.WRONG_LANGUAGE),
    ("\n".join(f"{number}. {ENGLISH}" for number in range(8)) + RUBBISH, Sign.GIBBERISH),
    (ENGLISH + "zxcvb qwrtp lkjhg mnbvc dfghj trwqp zzkrt bvnmc hjklp " * 2, Sign.GIBBERISH),
    ("κгλ漢абν字μ名в仮ξ", Sign.GIBBERISH),
    ("<think>First we add", Sign.REASONING_TAGS),
    ("The answer is 4<|im_end|>", Sign.TEMPLATE_MARKERS),
    ("The answer is 4.\nUser: And what then?", Sign.TEMPLATE_MARKERS),
]
SOUND = [
    ENGLISH,
    ENGLISH * 2,
    "x^2 + 2x + 1 = 0, so (x + 1)^2 = 0 and x = -1.",
    "\n".join(f"{number}. The number {number} is {'even' if number % 2 == 0 else 'odd'}" for number in range(60)),
    "def add(a, b):\n    return a + b\n" * 3 + "".join(f"print(add({n}, {n + 1}))\n" for n in range(30)),
    "He cannot sell more than he has, so he sells 4.",
    "Ein Apfel kostet 2 €.",
    "Ｔｈｅ　ａｎｓｗｅｒ　ｉｓ　ｆｏｕｒ",
    "The court held that the contract was void; the party in breach cannot recover. The answer is (B).",
    "By combining like terms, we get 4x = 28.",
    "El Paso, Los Angeles, Las Vegas and San Diego are cities; De Gaulle, Van Gogh and Da Vinci are not.",
    "La Traviata",
    "So α + β = γ, and δ is 2.",
    "for (ptr = str; *ptr; ptr++) { sprintf(buf, fmt, *ptr); strncpy(dst, src, len); }",
    "XML, HTML, HTTP, HTTPS, SMTP and MQTT are protocols or formats.",
    "",
]


def test_the_language_of_the_target_is_no_other_language() -> None:
    assert signs_of(GERMAN, PROMPT, target=GERMAN[40:] + GERMAN[:40]) == frozenset()
    assert signs_of(GERMAN, PROMPT, target=ENGLISH) == {Sign.WRONG_LANGUAGE}
    assert signs_of(GERMAN, PROMPT, target="4") == {Sign.WRONG_LANGUAGE}


@pytest.mark.parametrize(("text", "sign"), BROKEN)
def test_broken_texts(text: str, sign: Sign) -> None:
    assert sign in signs_of(text, PROMPT)


@pytest.mark.parametrize("text", SOUND)
def test_sound_texts(text: str) -> None:
    assert signs_of(text, PROMPT) == frozenset()


def test_the_prompts_language_is_no_other_language() -> None:
    assert signs_of(GERMAN, GERMAN) == frozenset()


@given(st.text(max_size=400), st.text(max_size=100))
def test_any_text_is_looked_at(text: str, prompt: str) -> None:
    signs_of(text, prompt)


@pytest.mark.parametrize("piece", ["a", "user ", "<", "I'm sorry ", "answer ", "x\n", "Q: ", "ab" * 50, "\\boxed{"])
def test_long_hostile_texts_are_read_to_the_end(piece: str) -> None:
    text = piece * (20_000 // len(piece))
    assert Sign.REPETITIVE in signs_of(text, PROMPT)
    assert missed_answer(f"{text}\n#### 18", "18") in (Where.HASHES, Where.BEFORE_NEXT_QUESTION, None)


@pytest.mark.data
def test_answers_of_real_models_show_next_to_nothing(model_outputs_dir: Path) -> None:
    lines = (model_outputs_dir / "gsm8k" / "openai_example_model_solutions.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    found = [signs_of(record["175b_verification"]["solution"], record["question"]) for record in records]
    assert sum(map(bool, found)) <= len(found) / 200


@given(st.text("abcdefgh .,\n", min_size=3, max_size=140).filter(lambda piece: len(set(piece)) > 2))
def test_every_loop_is_seen(piece: str) -> None:
    assert Sign.REPETITIVE in signs_of(ENGLISH + piece * (600 // len(piece) + 4), PROMPT)


@pytest.mark.parametrize(
    ("prompt", "is_found"),
    [
        ("when was the last time the philadelphia eagles played the patriots", True),
        ("Wann haben die Eagles das letzte Mal gegen die Patriots gespielt und wie ging es aus", False),
        ("x + 3 = 5", False),
    ],
)
def test_a_short_answer_in_spanish_to_a_short_question(prompt: str, is_found: bool) -> None:
    said = "Creo que la respuesta a esta pregunta es muy clara si se miran bien todas las condiciones"
    assert is_in_another_language(said, prompt) is is_found
    assert not is_in_another_language("I think that the answer to this is on the first page of it", prompt)
