"""Apache Arrow over a fabric (``pip install '.[arrow]'``): streams of record batches, and batches in pipelines.

`serve_streams` and `open_stream` are the two ends of Arrow's Dissociated IPC protocol: the metadata and the buffers of
record batches are sent apart. The client reads the buffers out of the server's memory, or gets them as tagged messages.

`push_batch` and `decode_batch` make record batches the items of a pipeline (`aiofabric.pipeline`).
"""

from .client import ArrowStream, open_stream
from .items import EncodedBatch, decode_batch, encode_batch, push_batch
from .metadata import ArrowProtocolError
from .server import StreamServer, serve_streams

__all__ = [
    "ArrowProtocolError",
    "ArrowStream",
    "EncodedBatch",
    "StreamServer",
    "decode_batch",
    "encode_batch",
    "open_stream",
    "push_batch",
    "serve_streams",
]
