"""An OPT model that FlexLLMGen runs: rows of token ids in, rows of token ids out."""

from __future__ import annotations

import importlib
import importlib.util
import io
import threading
import weakref
from contextlib import nullcontext, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any

from assay.errors import MissingDependencyError, SpecificationError
from assay.flexllmgen.policy import refuse_what_needs_a_gpu
from assay.flexllmgen.weights import optconfig_values, write_weights
from assay.flexllmgen.without_cuda import give_torch_without_cuda, tensors_stay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.flexllmgen.policy import PolicyOptions

_PACKAGES = ("flexllmgen", "flexgen")
"""The package's name in its repository, and on the package index."""
_MODULES = ("flex_opt", "pytorch_backend", "compression", "utils", "timer")
_PADDED_TO = 256
_SECONDS_TO_END = 10


class OptModel:
    """Loads the weights and generates.

    Args:
        source: the model's directory, or its name on the hub.
        options: FlexLLMGen's options.

    Raises:
        MissingDependencyError: FlexLLMGen, PyTorch or transformers is not installed.
        SpecificationError: FlexLLMGen cannot run the model.
        OutputError: the weights cannot be written.
    """

    def __init__(self, source: str, options: PolicyOptions) -> None:
        self.options = options
        self._torch, transformers = _import("torch"), _import("transformers")
        self.package, modules = _import_flexllmgen()
        self.has_gpu = bool(self._torch.cuda.is_available())
        if not self.has_gpu:
            refuse_what_needs_a_gpu(options)
            give_torch_without_cuda(self._torch, modules.values())
        try:
            config = transformers.AutoConfig.from_pretrained(source)
        except Exception as error:  # transformers raises anything for a damaged file
            reason = " ".join(str(error).split())[:300]
            raise SpecificationError(f"the model {source!r} cannot be loaded: {reason}") from None
        values = optconfig_values(config, source)
        self.weights = write_weights(source, options.path, transformers, self._torch)
        opt_config = importlib.import_module(f"{self.package}.opt_config")
        flex_opt = modules["flex_opt"]
        self.config = opt_config.OptConfig(name=self.weights.name, **values)
        self._env = self._environment(modules)
        # A process that ends while the copying threads still run is aborted.
        self._ending = weakref.finalize(self, _end_copying, self._env.disk)
        self._model = self._load(flex_opt)

    @property
    def max_length(self) -> int:
        """Context length in tokens."""
        return int(self.config.max_seq_len)

    def generate(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, *, temperature: float, stop: int | None, seed: int
    ) -> list[list[int]]:
        """Answer prompts.

        Args:
            prompts: token ids of at most :attr:`PolicyOptions.effective_batch_size` prompts.
            max_new_tokens: tokens to generate, at least 1.
            temperature: below 1e-5 the likeliest token is taken.
            stop: a token that ends an answer.
            seed: for sampling.

        Returns:
            For each prompt its new tokens, with the stop token and without what follows it.
        """
        import numpy as np

        pad = self.config.pad_token_id
        width = self._padded_length(max(map(len, prompts)), max_new_tokens)
        rows = np.full((self.options.effective_batch_size, width), pad, dtype=np.int32)
        for row, prompt in zip(rows, prompts, strict=False):
            row[width - len(prompt) :] = prompt
        self._torch.manual_seed(seed)
        with self._running():
            output = self._model.generate(
                rows, max_new_tokens=max_new_tokens, do_sample=True, temperature=temperature, stop=stop
            )
        answers: list[list[int]] = output[: len(prompts), width:].tolist()
        return [_through(answer, stop) for answer in answers]

    def close(self) -> None:
        """End FlexLLMGen's copying threads."""
        self._ending()

    def longest_prompt(self, max_new_tokens: int) -> int:
        """The largest number of tokens of a prompt that is answered with so many.

        FlexLLMGen reads the last new token, but never feeds it to the model.
        """
        fitting = self.max_length - max(1, max_new_tokens) + 1
        return min(fitting, self.options.pad_to_seq_len or fitting)

    def _padded_length(self, longest: int, max_new_tokens: int) -> int:
        most = self.longest_prompt(max_new_tokens)
        if longest > most:
            raise SpecificationError(
                f"a prompt has {longest} tokens, and prompts are padded to {most} (pad_to_seq_len): use a longer one"
            )
        return min(-(-longest // _PADDED_TO) * _PADDED_TO, most)

    def _load(self, flex_opt: Any) -> Any:
        folder = str(self.weights.folder)
        try:
            with self._running():
                return _quiet(flex_opt.OptLM)(self.config, self._env, folder, _policy(flex_opt, self.options))
        except (ValueError, EOFError, OSError, RuntimeError) as error:  # what NumPy and PyTorch raise
            reason = " ".join(str(error).split())[:300]
            if "memory" in reason:
                advice = "give another percent, with less where there is too little memory"
            else:
                advice = "if they are damaged, remove that folder, and it is written again"
            where = self.weights.folder / f"{self.weights.name}-np"
            raise SpecificationError(f"FlexLLMGen cannot load the weights in {where}: {reason}; {advice}") from None

    def _running(self) -> Any:
        return nullcontext() if self.has_gpu else tensors_stay(self._torch)

    def _environment(self, modules: dict[str, Any]) -> Any:
        """FlexLLMGen's devices.

        Its copying threads would keep the process alive after an error. Made in a daemon thread, they are daemons too.
        """
        backend, made = modules["pytorch_backend"], []

        def make() -> None:
            gpu, cpu = backend.TorchDevice("cuda:0" if self.has_gpu else "cpu"), backend.TorchDevice("cpu")
            disk = backend.TorchDisk(self.options.offload_dir)
            mixed = backend.TorchMixedDevice([gpu, cpu, disk])
            made.append(modules["utils"].ExecutionEnv(gpu=gpu, cpu=cpu, disk=disk, mixed=mixed))

        thread = threading.Thread(target=make, daemon=True)
        thread.start()
        thread.join()
        if not made:
            raise SpecificationError(f"FlexLLMGen cannot use offload_dir = {self.options.offload_dir!r} or the GPU")
        return made[0]


def _end_copying(disk: Any) -> None:
    """End the copying threads.

    FlexLLMGen's own ``close_copy_threads`` then waits for every copy, for ever if a thread has died of one.
    """
    for _ in disk.copy_threads:
        disk.copy_queue.put_nowait(None)
    for thread in disk.copy_threads:
        thread.join(_SECONDS_TO_END)
    disk.copy_queue = None  # else FlexLLMGen waits for the copies when the object goes


def _quiet(model: Any) -> Any:
    """FlexLLMGen's model, of which a half-loaded one goes without a traceback."""

    def delete_weights(loaded: Any) -> None:
        with suppress(TypeError, AttributeError):  # of a layer without weights
            loaded.delete_all_weights()

    return type(model.__name__, (model,), {"__del__": delete_weights})


def _policy(flex_opt: Any, options: PolicyOptions) -> Any:
    """FlexLLMGen's policy; compression is that of its ``helm_run.py``."""

    def compression(dimension: int) -> Any:
        return flex_opt.CompressionConfig(num_bits=4, group_size=64, group_dim=dimension, symmetric=False)

    return flex_opt.Policy(
        options.gpu_batch_size,
        options.num_gpu_batches,
        *options.percentages,
        overlap=options.overlap,
        sep_layer=options.sep_layer,
        pin_weight=options.pin_weight,
        cpu_cache_compute=options.cpu_cache_compute,
        attn_sparsity=options.attn_sparsity,
        compress_weight=options.compress_weight,
        comp_weight_config=compression(0),
        compress_cache=options.compress_cache,
        comp_cache_config=compression(2),
    )


def _through(tokens: list[int], stop: int | None) -> list[int]:
    return tokens if stop is None or stop not in tokens else tokens[: tokens.index(stop) + 1]


def _import_flexllmgen() -> tuple[str, dict[str, Any]]:
    """The package's name and its modules, without what they print."""
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            continue
        try:
            with redirect_stdout(io.StringIO()):
                return package, {name: importlib.import_module(f"{package}.{name}") for name in _MODULES}
        except ImportError as error:
            raise MissingDependencyError(
                f"the package {package} cannot be imported: {error}; its dependencies are attrs, numpy, pulp, torch, "
                "tqdm and transformers"
            ) from None
    raise MissingDependencyError("FlexLLMGen is not installed: pip install --no-deps flexgen && pip install attrs pulp")


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingDependencyError(f"FlexLLMGen needs the package {name}: pip install 'assay[hf]'") from None
