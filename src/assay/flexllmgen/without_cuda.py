"""Runs FlexLLMGen on a machine without a GPU.

FlexLLMGen names CUDA streams, pinned memory and ``Tensor.cuda()`` directly. Its modules get a ``torch`` of their own,
in which streams do nothing and no memory is pinned, and tensors stay where they are while it runs. PyTorch itself, and
every other package that uses it, is left as it is.
"""

from __future__ import annotations

import contextlib
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager


def give_torch_without_cuda(torch: Any, modules: Iterable[Any]) -> None:
    """Replace ``torch`` in the modules.

    Args:
        torch: PyTorch.
        modules: FlexLLMGen's modules.
    """
    for module in modules:
        if hasattr(module, "torch"):
            module.torch = _TorchWithoutCuda(torch)


def tensors_stay(torch: Any) -> AbstractContextManager[Any]:
    """Within this context, in this thread, moving a tensor to the GPU or pinning it returns the tensor itself."""

    class TensorsStay(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        """Answers the two methods and passes everything else on."""

        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
                return args[0]
            return func(*args, **(kwargs or {}))

    return TensorsStay()


class _TorchWithoutCuda(types.ModuleType):
    """PyTorch, except for CUDA."""

    def __init__(self, torch: Any) -> None:
        super().__init__("torch")
        self._torch = torch
        self.cuda = types.SimpleNamespace(
            Stream=_Stream,
            stream=lambda _: contextlib.nullcontext(),
            synchronize=lambda *_: None,
            set_device=lambda _: None,
            memory_allocated=lambda *_: 0,
            max_memory_allocated=lambda *_: 0,
        )

    def empty(self, *size: Any, pin_memory: bool = False, **options: Any) -> Any:  # noqa: ARG002 - nothing is pinned
        return self._torch.empty(*size, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)


class _Stream:
    """A stream in which everything has been done at once."""

    def synchronize(self) -> None:
        pass
