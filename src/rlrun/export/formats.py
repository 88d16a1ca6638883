"""Encodes traced programs in the file formats of exported policies, and loads such files as functions."""

import io
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.export import ExportedProgram

from rlrun.export.program import quiet

Arrays = dict[str, np.ndarray]
Act = Callable[[Arrays], Arrays]  # maps the inputs of an exported policy to its outputs


class Format(NamedTuple):
    """One file format."""

    filename: str
    extra: str | None  # extra of pyproject.toml that installs its packages, if any
    packages: tuple[str, ...]  # packages whose versions the metadata records
    encode: Callable[[ExportedProgram], bytes]
    load: Callable[[bytes], Act]


def encode_onnx(program: ExportedProgram) -> bytes:
    """Returns an ONNX model as bytes, with its weights inside."""
    inputs, outputs = names(program)
    with quiet():
        model: Any = torch.onnx.export(
            program, dynamo=True, input_names=inputs, output_names=outputs, external_data=False, verbose=False
        )
    return model.model_proto.SerializeToString()


def load_onnx(content: bytes) -> Act:
    """Returns an ONNX model as a function."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]

    def act(inputs: Arrays) -> Arrays:
        return dict(zip(outputs, session.run(outputs, inputs), strict=True))

    return act


def encode_torch(program: ExportedProgram) -> bytes:
    """Returns the content of a .pt2 file."""
    file = io.BytesIO()
    with quiet():
        torch.export.save(program, file)
    return file.getvalue()


def load_torch(content: bytes) -> Act:
    """Returns a .pt2 file as a function. This process must have made it, because loading it may run code."""
    with quiet():
        module = torch.export.load(io.BytesIO(content)).module()

    @torch.no_grad()
    def act(inputs: Arrays) -> Arrays:
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        return {name: output.numpy() for name, output in module(tensors).items()}

    return act


def names(program: ExportedProgram) -> tuple[list[str], list[str]]:
    """Returns the names of the inputs and outputs of a program, in its order."""
    (inputs,), _ = program.example_inputs
    outputs = program.call_spec.out_spec
    assert outputs is not None
    return [*inputs], list(outputs.context)


FORMATS: Mapping[str, Format] = {
    "onnx": Format("policy.onnx", "export", ("torch", "onnx", "onnxscript", "onnxruntime"), encode_onnx, load_onnx),
    "torch": Format("policy.pt2", None, ("torch",), encode_torch, load_torch),
}
