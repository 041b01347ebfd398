"""From graphs to ONNX files: a row for each function, and the shapes that stay open."""
