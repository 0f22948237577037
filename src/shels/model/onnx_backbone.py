"""A backbone out of an ONNX file, run by onnxruntime; the file's bytes are stored with the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shels.errors import ArchitectureError


class OnnxModule(nn.Module):
    """Makes features of normalised images by the graph in an ONNX file; nothing of it is trained.

    model: (bytes,), the file as it is, uint8.
    """

    model: Tensor

    def __init__(self, model: Tensor) -> None:
        super().__init__()
        self.register_buffer("model", model)
        self._session: Any = None

    def forward(self, inputs: Tensor) -> Tensor:
        """Return what the graph's first output is: (n, channels, height, width) -> (n, ...)."""
        if self._session is None:
            self._session = _session(self.model)
        name = self._session.get_inputs()[0].name
        found = self._session.run(None, {name: inputs.detach().float().cpu().contiguous().numpy()})[0]
        return torch.from_numpy(found).to(inputs.device)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the running session out of copies; each makes its own."""
        return {**self.__dict__, "_session": None}


def _session(model: Tensor) -> Any:
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(
        model.cpu().numpy().tobytes(), options, providers=["CPUExecutionProvider"]
    )


def check_onnx(module: OnnxModule, path: Path) -> int:
    """Raise unless a file makes features of batches of images; give the side that it wants, or 224."""
    try:
        session = _session(module.model)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise ArchitectureError(f"{path} is no model that onnxruntime can run: {first}") from error
    taken = session.get_inputs()
    shape = taken[0].shape if len(taken) == 1 else []
    if len(shape) != 4 or taken[0].type != "tensor(float)" or shape[1] not in (1, 3):
        raise ArchitectureError(
            f"{path} must take one float input (n, 3, height, width), normalised images; it takes "
            f"{[(each.name, each.type, each.shape) for each in taken]}"
        )
    if isinstance(shape[0], int):
        raise ArchitectureError(
            f"{path} takes {shape[0]} images at once; export it with a dynamic batch axis"
        )
    return shape[2] if isinstance(shape[2], int) else 224
