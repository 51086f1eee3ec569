"""How often triage blames something on healthy runs: simulated models, strong and weak, each run alone and run again.

    python -m benchmarks.triage_false_alarms --runs 300

Accuracy is 0.2 to 0.9; up to 15 % of the answers never end and up to 5 % have another form than the examples. The
second run is the same server again: 0.5 to 2 % of the answers are drawn anew.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import msgspec

from assay.diagnosis.evidence import Baseline, Evidence, Twin
from assay.diagnosis.facts import SampleFacts, facts_of
from assay.diagnosis.run import diagnose
from assay.results.document import ResultsDocument
from assay.runs.samples import Filtered, Message, Prompt, RunSample
from assay.scoring.outcomes import outcome_of
from assay.types import Answer
from tests.diagnosis.simulated import SimulatedModel
from tests.diagnosis.tasks.rows import row

STOPS = ["Question:", "</s>"]
LIMIT = 120
PATTERNS = {"sums": r"#### (\-?[0-9\.\,]+)", "picks": r"answer is \(?([ABCD])\)?"}
NO_ANSWER = "[invalid]"


def facts_of_run(model: SimulatedModel, kind: str, documents: int, seed: int) -> Iterator[SampleFacts]:
    """A run's facts, without a server: a second between answers, three endpoints."""
    for number in range(documents):
        document = row(kind, number)
        question = f"Question: {document['question']}\nAnswer:"
        body = {"messages": [{"role": "user", "content": question}], "max_tokens": LIMIT, "stop": STOPS, "model": "m"}
        reply = model(body)
        choice = reply["choices"][0]
        answer = Answer(
            text=choice["message"]["content"],
            finish_reason=choice["finish_reason"],
            endpoint=f"http://server-{random.Random(f'{seed} {number}').randrange(3)}",
            **{name: reply["usage"][name] for name in ("prompt_tokens", "completion_tokens")},
        )
        found = re.findall(PATTERNS[kind], answer.text or "")
        extracted = found[0] if found else NO_ANSWER
        score = float(extracted == document["answer"].rpartition("#### ")[2])
        outcome = outcome_of([answer], [extracted], [NO_ANSWER])
        filtered = Filtered(extracted=extracted, metrics={"exact_match": score}, outcome=outcome)
        settings = {"until": STOPS, "max_gen_toks": LIMIT}
        sample = RunSample(
            task=kind,
            doc_id=number,
            doc=msgspec.Raw(msgspec.json.encode(document)),
            target=document["answer"],
            prompts=(Prompt(content=(Message("user", question),), settings=settings),),
            responses=(answer,),
            times=(1e9 + number,),
            filters={"first": filtered},
            prompt_hash=str(number),
        )
        yield facts_of(sample, "exact_match,first")


def healthy_pair(seed: int) -> tuple[str, str]:
    """The headlines of a healthy run alone, and of its repetition beside it."""
    draw = random.Random(seed)
    kind, documents = draw.choice(("sums", "picks")), draw.choice((60, 150, 400))
    model = SimulatedModel(
        seed=seed,
        accuracy=draw.choice((0.2, 0.3, 0.5, 0.7, 0.9)),
        loops=draw.choice((0.0, 0.02, 0.05, 0.1, 0.15)),
        odd_form=draw.choice((0.0, 0.02, 0.05)),
    )
    first = list(facts_of_run(model, kind, documents, seed))
    again = replace(model, noise=draw.choice((0.005, 0.01, 0.02)))
    second = list(facts_of_run(again, kind, documents, -seed - 1))
    twins = {sample.place: Twin(score=sample.score, facts=sample) for sample in first}
    document = ResultsDocument(results={}, model_name="m")
    alone = diagnose(Evidence(first, document, None))
    beside = diagnose(Evidence(second, document, Baseline(source="first", twins=twins)))
    return alone.headline, beside.headline


def main() -> None:
    """Count what is said."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=300)
    runs = parser.parse_args().runs
    said: Counter[tuple[str, str]] = Counter()
    for seed in range(runs):
        for how, headline in zip(("alone", "beside the first"), healthy_pair(seed), strict=True):
            said[how, ": ".join(headline.split(": ")[:2]).split(" (")[0].split(" than")[0]] += 1
    for (how, headline), count in sorted(said.items(), key=lambda each: (each[0][0], -each[1])):
        print(f"{how:16} {count:5} of {runs}  {headline}")


if __name__ == "__main__":
    main()
