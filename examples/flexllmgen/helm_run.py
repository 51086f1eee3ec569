"""FlexLLMGen's helm_run.py on assay.helm.legacy: a description in, HELM's five files out.

python helm_run.py mmlu:subject=anatomy facebook/opt-1.3b runs percent="0 100 100 0 100 0"
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

from assay.flexllmgen.opt_model import OptModel
from assay.flexllmgen.policy import read_policy_options
from assay.helm import legacy as helm


def answered(state, tokenizer, ids):
    """A request with the tokens that FlexLLMGen generated for it."""
    pieces = tokenizer.convert_ids_to_tokens(ids)
    tokens = [helm.Token(text=piece, logprob=0) for piece in pieces]
    whole = helm.Sequence(text=tokenizer.decode(ids), logprob=0, tokens=tokens)
    completions = [helm.truncate_sequence(whole, state.request)]
    return replace(state, result=helm.RequestResult(success=True, embedding=[], completions=completions, cached=False))


def execute(scenario_state, model, tokenizer):
    """Answer all requests, in batches of FlexLLMGen's size."""
    states, size = scenario_state.request_states, model.options.effective_batch_size
    request = states[0].request
    stops = [tokenizer.encode(stop, add_special_tokens=False) for stop in request.stop_sequences]
    stop = stops[0][0] if len(stops) == 1 and len(stops[0]) == 1 else None
    done = []
    for first in range(0, len(states), size):
        batch = states[first : first + size]
        rows = model.generate(
            [tokenizer.encode(state.request.prompt, add_special_tokens=False) for state in batch],
            request.max_tokens,
            temperature=request.temperature or 1e-7,
            stop=stop,
            seed=0,
        )
        done += [answered(state, tokenizer, row) for state, row in zip(batch, rows, strict=True)]
    return replace(scenario_state, request_states=done)


def main(description, name, output, *options):
    """Build the run, answer it, and write its files."""
    service = helm.OptTokenizer(name)
    entry = helm.EntryOptions(max_eval_instances=3, num_train_trials=3, helm_python=os.environ.get("ASSAY_HELM_PYTHON"))
    run = helm.build_run(description, f"facebook/{Path(name).name}", name, output, entry)
    model = OptModel(name, read_policy_options(dict(option.split("=", 1) for option in options)))
    state = execute(run.scenario_state, model, service.tokenizer)
    model.close()
    folder = Path(output, run.run_spec.name)
    helm.ensure_directory_exists(folder)
    helm.run_entry(run.run_spec, state, folder, service, scenario=run.scenario, first_metric_only=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
