"""Builds a run with the installed HELM and writes its files, without results.

It runs as a script, by an interpreter that has crfm-helm and need not have Assay, and reads a job as JSON from stdin.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Build the run that the job on stdin describes; an error is the last line on stderr."""
    job = json.load(sys.stdin)
    try:
        build(job)
    except PluginError as error:
        _end(str(error))
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "helm":
            _end(f"{sys.executable} has no crfm-helm: pip install crfm-helm there")
        _end(f"{type(error).__name__}: {error}")


class PluginError(Exception):
    """A plugin cannot be imported."""


def _end(reason: str) -> None:
    sys.stderr.write(" ".join(reason.split()) + "\n")
    sys.exit(1)


def build(job: dict[str, Any]) -> None:
    """Write ``run_spec.json``, ``scenario.json`` and ``scenario_state.json``."""
    run = _helm("benchmark.run")
    runner = _helm("benchmark.runner")
    _helm("benchmark.config_registry").register_builtin_configs_from_helm_package()
    sys.path.append("")  # last, so that a module of the working directory does not shadow one of HELM's
    for plugin in job["plugins"]:
        _import_plugin(run, plugin)
    runner.set_benchmark_output_path(job["output_dir"])
    run_spec = _run_spec(run, job)
    scenario = _helm("benchmark.scenarios.scenario").create_scenario(run_spec.scenario_spec)
    request_states = _request_states(runner, run_spec, scenario, job["output_dir"])
    state = _helm("benchmark.adaptation.scenario_state").ScenarioState(
        adapter_spec=run_spec.adapter_spec, request_states=request_states, annotator_specs=run_spec.annotators
    )
    without_nones = _helm("common.general").asdict_without_nones
    for name, record in (("run_spec", run_spec), ("scenario", scenario), ("scenario_state", state)):
        text = json.dumps(without_nones(record), indent=2)
        (Path(job["folder"]) / f"{name}.json").write_text(text, encoding="ascii")


def _import_plugin(run: Any, plugin: str) -> None:
    try:
        run.import_user_plugins([plugin])
    except SystemExit as error:
        raise PluginError(f"the plugin {plugin!r} calls sys.exit({error.code!r}) when it is imported") from None
    except Exception as error:
        raise PluginError(f"the plugin {plugin!r} cannot be imported: {type(error).__name__}: {error}") from None


def _run_spec(run: Any, job: dict[str, Any]) -> Any:
    parsed = _helm("common.object_spec").parse_object_spec(job["description"])
    named = parsed.args.get("model_deployment") or parsed.args.get("model", "")
    model = named if "/" in named and not job["is_named"] else job["model"]
    _register(model, job)
    name, _, rest = job["description"].partition(":")
    settings = [pair for pair in rest.split(",") if pair and not pair.startswith(("model=", "model_deployment="))]
    description = f"{name}:{','.join([*settings, f'model={model}'])}"
    entry = _helm("benchmark.presentation.run_entry").RunEntry(description)
    run_specs = run.run_entries_to_run_specs(
        [entry], max_eval_instances=job["max_eval_instances"], num_train_trials=job["num_train_trials"]
    )
    if len(run_specs) != 1:
        names = ", ".join(run_spec.name for run_spec in run_specs)
        raise ValueError(f"the entry describes {len(run_specs)} runs; describe one of them ({names})")
    return run_specs[0]


def _register(model: str, job: dict[str, Any]) -> None:
    """Register the model with its tokenizer in HELM; what HELM already knows of the name is kept."""
    deployments = _helm("benchmark.model_deployment_registry")
    tokenizers = _helm("benchmark.tokenizer_config_registry")
    tokenizer_name = max_length = None
    if job["tokenizer"] is not None:
        path = {"pretrained_model_name_or_path": job["tokenizer"]}
        huggingface = _helm("tokenizers.huggingface_tokenizer").HuggingFaceTokenizer
        with huggingface.create_tokenizer(**path) as tokenizer:
            max_length = job["max_length"] or tokenizer.model_max_length
            end, beginning = tokenizer.eos_token or "", tokenizer.bos_token or ""
        tokenizer_name = model
        spec = tokenizers.TokenizerSpec("helm.tokenizers.huggingface_tokenizer.HuggingFaceTokenizer", path)
        tokenizers.register_tokenizer_config(tokenizers.TokenizerConfig(model, spec, end, beginning))
    client = deployments.ClientSpec("helm.clients.simple_client.SimpleClient", {})  # it gets no requests
    deployments.register_model_deployment(
        deployments.ModelDeployment(
            name=model,
            client_spec=client,
            model_name=model,
            tokenizer_name=tokenizer_name,
            max_sequence_length=max_length,
        )
    )


def _request_states(runner: Any, run_spec: Any, scenario: Any, output_dir: str) -> Any:
    """The requests that HELM's runner would make."""
    scenarios = _helm("benchmark.scenarios.scenario")
    folder = scenarios.get_scenario_cache_path(output_dir, scenario.name)
    instances = scenario.get_instances(folder)
    if any(instance.id is None for instance in instances):
        instances = scenarios.with_instance_ids(instances)
    adapter_spec = run_spec.adapter_spec
    if adapter_spec.max_eval_instances is not None:
        splits = adapter_spec.eval_splits or scenarios.EVAL_SPLITS
        instances = runner.downsample_eval_instances(instances, adapter_spec.max_eval_instances, splits)
    preprocessor = _helm("benchmark.data_preprocessor").DataPreprocessor(run_spec.data_augmenter_spec)
    instances = preprocessor.preprocess(instances, 1)
    executor = _helm("benchmark.executor")
    context = executor.Executor(
        executor.ExecutionSpec(url=None, auth=None, local_path=output_dir, parallelism=1)
    ).context
    service = _helm("benchmark.window_services.tokenizer_service").TokenizerService(context)
    adapter = _helm("benchmark.adaptation.adapters.adapter_factory").AdapterFactory.get_adapter(adapter_spec, service)
    return adapter.adapt(instances, 1)


def _helm(name: str) -> Any:
    return importlib.import_module(f"helm.{name}")


if __name__ == "__main__":
    main()
