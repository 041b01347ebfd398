"""ONNX networks that are called: their graphs by shapes of inputs, whole or in stages."""
