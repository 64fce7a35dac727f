"""Safetensors files for the tests of the CLI: written and read with the standard library alone."""
import json
import random
import struct

BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "F8_E5M2": 1, "U8": 1, "I32": 4}


class Cache:
    """Tensors as {name: (dtype, shape, bytes)}, and metadata. Change them, then write."""

    def __init__(self, tensors, metadata):
        self.tensors, self.metadata = tensors, metadata

    def write(self, path):
        header, body, at = {"__metadata__": self.metadata}, b"", 0
        for name, (dtype, shape, data) in self.tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
            body += data
            at += len(data)
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + body)
        return path


def read(path):
    data = path.read_bytes()
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", {})
    body = data[8 + size:]
    return Cache({name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
                  for name, entry in header.items()}, metadata)


def values(seed, dtype, count):
    """Finite numbers of moderate size."""
    source = random.Random(seed)
    if dtype == "F32":
        return struct.pack(f"<{count}f", *(source.gauss(0, 1) for _ in range(count)))
    if dtype == "F16":
        return struct.pack(f"<{count}e", *(source.gauss(0, 1) for _ in range(count)))
    if dtype == "BF16":
        wide = struct.pack(f"<{count}f", *(source.gauss(0, 1) for _ in range(count)))
        return b"".join(wide[i + 2:i + 4] for i in range(0, len(wide), 4))
    return bytes(source.randrange(0x78) for _ in range(count * BYTES[dtype]))


def make(seed, tokens=80, layers=2, heads=2, dim=16, dtype="BF16"):
    tensors = {}
    for layer in range(layers):
        for kind in "kv":
            tensors[f"layers.{layer}.{kind}"] = (
                dtype, [heads, tokens, dim],
                values(f"{seed}.{layer}.{kind}", dtype, heads * tokens * dim))
    source = random.Random(seed)
    return Cache(tensors, {
        "token_ids": json.dumps([source.randrange(50000) for _ in range(tokens)]),
        "rope_theta": "10000.0", "rope_layout": "half", "model": "test-model"})
