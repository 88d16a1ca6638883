"""Writes trained policies as programs, in ONNX or torch's format, that run without rlrun."""
