"""Reads and writes KV caches as safetensors files, with nothing but the standard library."""
import json
import struct

ROPE_THETA = 10000.0


class Cache:
    def __init__(self, metadata, shapes, tensors):
        self.metadata, self.shapes, self.tensors = metadata, shapes, tensors


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    header_bytes, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + header_bytes])
    metadata = header.pop("__metadata__", {})
    body = memoryview(data)[8 + header_bytes:]
    tensors = {name: body[slice(*entry["data_offsets"])] for name, entry in header.items()}
    return Cache(metadata, {name: entry["shape"] for name, entry in header.items()}, tensors)


def random_bf16(random, count):
    """`count` numbers of both signs with magnitudes from 0.5 to 2."""
    mask = int.from_bytes(b"\xff\x80" * count, "little")
    exponent = int.from_bytes(b"\x00\x3f" * count, "little")
    noise = int.from_bytes(random.randbytes(2 * count), "little")
    return ((noise & mask) | exponent).to_bytes(2 * count, "little")


def write_synthetic(path, random, tokens=256, layers=2, heads=2, head_dim=64, model="synthetic",
                    own_rotary=False):
    """A cache of random numbers and random token ids.

    With `own_rotary` every model layer has another rotary embedding; the profile holds them all.
    """
    header, body = {}, []
    offset, size = 0, 2 * heads * tokens * head_dim
    for layer in range(layers):
        for kind in "kv":
            header[f"layers.{layer}.{kind}"] = {
                "dtype": "BF16", "shape": [heads, tokens, head_dim],
                "data_offsets": [offset, offset + size]}
            body.append(random_bf16(random, size // 2))
            offset += size
    header["__metadata__"] = {
        "token_ids": json.dumps([random.randrange(50000) for _ in range(tokens)]),
        "rope_theta": str(ROPE_THETA), "rope_layout": "half", "model": model}
    for layer in range(layers if own_rotary else 0):
        header["__metadata__"][f"layers.{layer}.rope_inv_freq"] = json.dumps(
            [1 / (layer + 1)] * (head_dim // 2))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(body))
