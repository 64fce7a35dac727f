"""Caches on disk: a folder a context.

NAME/kv.safetensors is a cache as the program reads it: `layers.{i}.k` and `layers.{i}.v`, bf16,
[num_kv_heads, num_tokens, head_dim], keys after the rotary embedding. NAME/tail.safetensors has
what follows in the text: `tail`, the token ids, and `logprobs`, fp16, what the model predicts after
each of them with the untouched cache.
"""
import dataclasses
import json
import pathlib

import safetensors
import safetensors.torch


def read_planes(path):
    """[(K, V)] by model layer."""
    tensors = safetensors.torch.load_file(path)
    return [(tensors[f"layers.{i}.k"], tensors[f"layers.{i}.v"]) for i in range(len(tensors) // 2)]


@dataclasses.dataclass(frozen=True)
class Context:
    folder: pathlib.Path

    @property
    def name(self):
        return self.folder.name

    @property
    def cache(self):
        return self.folder / "kv.safetensors"

    def planes(self):
        return read_planes(self.cache)

    def token_ids(self):
        with safetensors.safe_open(self.cache, "pt") as file:
            return json.loads(file.metadata()["token_ids"])

    def tail(self):
        """(token ids, log-probabilities) of the tail."""
        tensors = safetensors.torch.load_file(self.folder / "tail.safetensors")
        return tensors["tail"], tensors["logprobs"].float()

    def elements(self):
        with safetensors.safe_open(self.cache, "pt") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]
        return sum(heads * tokens * dim for heads, tokens, dim in shapes)

    def complete(self):
        return (self.folder / "tail.safetensors").exists()  # written last

    def write(self, planes, metadata, tail, logprobs):
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {f"layers.{i}.{kind}": plane.bfloat16().contiguous()
                   for i, pair in enumerate(planes) for kind, plane in zip("kv", pair)}
        safetensors.torch.save_file(tensors, self.cache, metadata)
        part = self.folder / "tail.part"
        safetensors.torch.save_file({"tail": tail, "logprobs": logprobs.half()}, part)
        part.rename(self.folder / "tail.safetensors")


def contexts_in(folder):
    """All complete contexts below a folder, by name."""
    found = map(Context, sorted(path for path in pathlib.Path(folder).iterdir() if path.is_dir()))
    return [context for context in found if context.complete()]
