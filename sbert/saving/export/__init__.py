"""Export: encoders for programs that run without this library, and without Python. The guide is ``guide.md`` here.

| format | runs in | needs, to write it |
|---|---|---|
| ``onnx`` | onnxruntime (C++, C#, Java, JavaScript, Rust, Python), OpenVINO | ``pip install "sbert[onnx]"`` |
| ``torch-export`` | torch, without the code of the model | nothing more |
"""

from sbert.saving.export.folder import export

__all__ = ["export"]
