"""Engines: a trained model as segments in PyTorch or ONNX Runtime, in float32 or INT8."""
