"""How a transformer runs: the plain way, and faster ones that give the same vectors. ``guide.md`` here is the guide.

| backend | runs when |
|---|---|
| ``fused`` | ``encode`` with these models: a forward from copies of the weights, laid out for speed |
| ``packed`` | the Hugging Face module without padding: all texts of a batch as one row |
| ``padded`` | the Hugging Face module with padding, if its attention needs it |
| ``engine`` | ``encode`` with ``backend="onnx"`` or ``"openvino"``, on a CPU: single texts |

Each backend is one file with one class: ``supports`` gives the reason why it cannot run a network, ``forward`` takes a
batch. ``sbert.backends.state`` lists them in order of preference and has one ``ModelState`` per network: what was
chosen for it, and copies of its weights until they change. An architecture is one entry of
``sbert.backends.architectures``, which says what its layers are made of: a norm before or after, layer or RMS norms,
absolute or rotary positions or a position bias, gated or plain feed-forward networks, shared heads, causal attention, a
local window.
"""

from sbert.backends.attention import attend, has_kernel
from sbert.backends.backend import PLAIN_REMEDY, CallSettings, InferenceCall, choose_backend
from sbert.backends.engines import ENGINES, choose_engine, trace, write_onnx
from sbert.backends.linear import matrix_product
from sbert.backends.minimal_bert import BertModel, PlainTokenizer, load_minimal_bert, materialize_tokenizer
from sbert.backends.network import (
    accepts,
    check_limit,
    default_limit,
    has_hooks,
    position_limit,
    snapshot,
    state_of,
    vocab_size,
    without_cache,
)
from sbert.backends.packed import adopt
from sbert.backends.padded import padded_arguments
from sbert.backends.parity import probe_of
from sbert.backends.state import explain, forward, head_logits, materialize, padding_reason, scores

__all__ = [
    "ENGINES",
    "PLAIN_REMEDY",
    "CallSettings",
    "InferenceCall",
    "BertModel",
    "PlainTokenizer",
    "accepts",
    "adopt",
    "attend",
    "check_limit",
    "choose_backend",
    "choose_engine",
    "default_limit",
    "explain",
    "forward",
    "has_hooks",
    "has_kernel",
    "head_logits",
    "load_minimal_bert",
    "materialize",
    "materialize_tokenizer",
    "matrix_product",
    "padded_arguments",
    "padding_reason",
    "position_limit",
    "probe_of",
    "scores",
    "snapshot",
    "state_of",
    "trace",
    "vocab_size",
    "without_cache",
    "write_onnx",
]
