#!/usr/bin/env python3
"""Writes keys.json: test vectors of namespace digests and chunk keys.

Made from FORMAT.md alone, with the standard library, so that it checks the C++ code independently
and shows other languages how keys are made.
"""
import hashlib
import json
import pathlib
import struct


def text(value):
    data = value.encode("utf-8")
    return struct.pack("<I", len(data)) + data


def encode_namespace(n):
    fields = ("model", "revision", "adapter", "tenant", "salt")
    return (
        b"sluice.namespace"
        + struct.pack("<I", 1)
        + b"".join(text(n[field]) for field in fields)
        + struct.pack("<I", n["chunk_tokens"])
        + bytes.fromhex(n["profile_id"])
    )


def chunk_keys(digest, token_ids, chunk_tokens):
    keys = []
    previous = digest
    for begin in range(0, len(token_ids) - chunk_tokens + 1, chunk_tokens):
        tokens = token_ids[begin : begin + chunk_tokens]
        data = b"sluice.chunk.key" + previous + struct.pack(f"<{chunk_tokens}I", *tokens)
        previous = hashlib.sha256(data).digest()
        keys.append(previous.hex())
    return keys


def namespace(model, revision="", adapter="", tenant="", salt="", chunk_tokens=256, profile=""):
    profile_id = hashlib.sha256(profile.encode()).hexdigest() if profile else "00" * 32
    return {
        "model": model,
        "revision": revision,
        "adapter": adapter,
        "tenant": tenant,
        "salt": salt,
        "chunk_tokens": chunk_tokens,
        "profile_id": profile_id,
    }


NAMESPACES = [
    namespace("m"),
    namespace("meta-llama/Llama-3.1-8B", "0e9e39f", "", "acme", "", 256, "llama"),
    namespace("meta-llama/Llama-3.1-8B", "0e9e39f", "", "", "acme", 256, "llama"),
    namespace("Qwen/Qwen2.5-7B", "main", "lora-7", "größe", "塩", 64, "qwen"),
    namespace("x" * 256, "y" * 256, "z" * 256, "t" * 256, "s" * 256, 4096, "long"),
    namespace("small chunks", chunk_tokens=16),
]

TOKENS = {
    "none": [],
    "one short of a chunk": list(range(15)),
    "one chunk": list(range(16)),
    "two chunks and a rest": [7 * i % 49152 for i in range(47)],
    "largest ids": [2**32 - 1, 0] * 16,
    "long": [i * i % 128256 for i in range(1024)],
}


def main():
    for n in NAMESPACES:
        encoded = encode_namespace(n)
        n["encoded"] = encoded.hex()
        n["digest"] = hashlib.sha256(encoded).hexdigest()
    chains = []
    for index, n in enumerate(NAMESPACES):
        for name, token_ids in TOKENS.items():
            if name == "long" and n["chunk_tokens"] == 16:
                continue
            keys = chunk_keys(bytes.fromhex(n["digest"]), token_ids, n["chunk_tokens"])
            if keys or name == "one short of a chunk":
                chains.append({"namespace": index, "token_ids": token_ids, "chunk_keys": keys})
    out = {"namespaces": NAMESPACES, "chains": chains}
    path = pathlib.Path(__file__).with_name("keys.json")
    path.write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    main()
