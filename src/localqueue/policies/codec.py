"""How values become bytes, as a policy of the queue. The codecs are words: ``localqueue.codec``."""

from __future__ import annotations

from localqueue.codec import BYTES_CODEC, JSON_CODEC, BytesCodec, JsonCodec
from localqueue.codec import Codec as CodecPolicy

__all__ = ["BYTES_CODEC", "JSON_CODEC", "BytesCodec", "CodecPolicy", "JsonCodec"]
