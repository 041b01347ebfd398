"""From ONNX files to graphs: the message, its limits, and a row for each operator."""
