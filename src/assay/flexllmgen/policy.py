"""FlexLLMGen's options, by its own names: where weights, cache and activations lie, and what is compressed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from assay.errors import SpecificationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_Count = Annotated[int, Meta(ge=1)]
_PERCENTAGES = "100 0 100 0 100 0"


class PolicyOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of FlexLLMGen's ``helm_run.py`` that decide how a model runs."""

    path: str = "~/opt_weights"
    """Folder of the weights in FlexLLMGen's format; missing ones are written there."""
    offload_dir: str = "~/flexllmgen_offload_dir"
    """Folder of what is offloaded to disk."""
    gpu_batch_size: _Count = 16
    """Prompts computed at once."""
    num_gpu_batches: _Count = 1
    """Batches that share one loading of the weights."""
    percent: str = _PERCENTAGES
    """Six numbers: per cent of the weights on the GPU and in memory, of the cache, and of the activations. The rest
    lies on disk."""
    pin_weight: bool = True
    """Keep weights that lie in memory in pinned memory; without a GPU nothing is pinned."""
    cpu_cache_compute: bool = False
    """Compute attention where the cache lies, on the CPU."""
    attn_sparsity: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Share of the values that attention reads."""
    compress_weight: bool = False
    """Quantise the weights to 4 bits, in groups of 64."""
    compress_cache: bool = False
    """Quantise the cache to 4 bits, in groups of 64."""
    overlap: bool = True
    """Load while computing."""
    sep_layer: bool = True
    """Load attention and MLP of a layer separately."""
    pad_to_seq_len: _Count | None = None
    """Length to which prompts are padded; by default the context length less the generated tokens. A batch of shorter
    prompts is padded to a multiple of 256 tokens."""

    @property
    def effective_batch_size(self) -> int:
        """Prompts that FlexLLMGen answers in one call."""
        return self.gpu_batch_size * self.num_gpu_batches

    @property
    def percentages(self) -> list[int]:
        """The six numbers of :attr:`percent`."""
        return [int(number) for number in self.percent.split()]

    @property
    def answers_depend_on(self) -> dict[str, Any]:
        """The options that can change an answer's tokens: what is rounded, and how much is added up at once."""
        names = ("gpu_batch_size", "percent", "cpu_cache_compute", "attn_sparsity", "compress_weight", "compress_cache")
        return {name: getattr(self, name) for name in (*names, "pad_to_seq_len")}


def read_policy_options(options: Mapping[str, Any]) -> PolicyOptions:
    """The options, as given on the command line or from Python.

    Args:
        options: values by FlexLLMGen's names; text is read as the option's type.

    Raises:
        SpecificationError: there is no such option, or its value is not one.
    """
    known = {field.name for field in msgspec.structs.fields(PolicyOptions)}
    for name in options:
        if name not in known:
            raise SpecificationError(f"FlexLLMGen has no option {name!r}; its options are {', '.join(sorted(known))}")
    given = dict(options)
    if isinstance(given.get("percent"), list | tuple):
        given["percent"] = " ".join(str(number) for number in given["percent"])
    try:
        read = msgspec.convert(given, PolicyOptions, strict=False)
    except msgspec.ValidationError as error:
        raise SpecificationError(f"an option of FlexLLMGen is wrong: {error}") from None
    _check_percentages(read)
    return read


def refuse_what_needs_a_gpu(options: PolicyOptions) -> None:
    """Refuse options that FlexLLMGen cannot follow on the CPU.

    There it unpacks 4-bit values into a workspace that only the cache of ``cpu_cache_compute`` has, and its sparse
    attention multiplies float32 queries with float16 keys.

    Raises:
        SpecificationError: names the options.
    """
    given = [name for name in ("compress_weight", "compress_cache") if getattr(options, name)]
    given += ["attn_sparsity"] if options.attn_sparsity < 1 else []
    if given:
        raise SpecificationError(
            f"FlexLLMGen cannot do {' and '.join(given)} without a GPU: leave that out, or use a machine with one"
        )


def _check_percentages(options: PolicyOptions) -> None:
    try:
        numbers = options.percentages
    except ValueError:
        numbers = []
    pairs = list(zip(numbers[::2], numbers[1::2], strict=False))
    if len(numbers) != 6 or min(numbers) < 0 or any(gpu + cpu > 100 for gpu, cpu in pairs):
        raise SpecificationError(
            f"percent = {options.percent!r} is not FlexLLMGen's: six whole numbers, GPU and memory for each of "
            f"weights, cache and activations, each pair at most 100, for example {_PERCENTAGES!r}"
        )
    if 100 not in numbers[4:]:
        raise SpecificationError(
            f"percent = {options.percent!r} splits the activations or puts them on disk, where FlexLLMGen loses them; "
            "the last two numbers are '100 0' (GPU) or '0 100' (memory)"
        )
    if options.attn_sparsity < 1 and options.compress_cache:
        raise SpecificationError(
            "FlexLLMGen compresses no cache that is read sparsely; leave out one of the two options"
        )
