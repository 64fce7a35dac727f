#!/usr/bin/env python3
"""Which directions of a key the queries look at, for `sluice calibrate --queries`.

  queries.py --caches FOLDER --out FILE.safetensors

`layers.{i}.q_cov`, float32 [num_kv_heads, head_dim, head_dim]: the second moment of the queries
that a KV head serves, as the un-rotated keys see them. The product of a query at position m with a
key at n depends on m - n only, so the query is rotated by m - n and the key not at all; n is drawn
evenly from the positions before m.
"""
import argparse
import pathlib

import safetensors.torch
import torch

from contexts import contexts_in
from model import Model, SINK_TOKENS
from progress import progress

DRAWS = 4  # keys drawn for a query


def rotate(vectors, positions, theta):
    """Rotary embedding of [..., tokens, dim]; dimension d is paired with d + dim / 2."""
    first, second = vectors.double().chunk(2, -1)
    half = first.shape[-1]
    turn = positions.double().unsqueeze(1) * theta ** (-torch.arange(half).double() / half)
    turned = torch.complex(first, second) * torch.polar(torch.ones_like(turn), turn)
    return torch.cat([turned.real, turned.imag], -1).float()


@torch.no_grad()
def queries_of(model, ids):
    """Queries before the rotary embedding, [kv_heads, queries a head, tokens, dim] by layer."""
    config, seen = model.network.config, []
    hooks = [layer.self_attn.q_proj.register_forward_hook(lambda _, __, out: seen.append(out[0]))
             for layer in model.network.model.layers]
    model.network.model(torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    kv_heads = config.num_key_value_heads
    shared = config.num_attention_heads // kv_heads
    return [flat.unflatten(1, (kv_heads, shared, -1)).permute(1, 2, 0, 3) for flat in seen]


def query_moments(model, contexts):
    """[kv_heads, dim, dim] by model layer."""
    generator = torch.Generator().manual_seed(1)
    moments, draws = None, 0
    for context in progress("queries", contexts):
        layers = queries_of(model, context.token_ids())
        positions = torch.arange(layers[0].shape[2])
        for _ in range(DRAWS):
            keys = (torch.rand(len(positions), generator=generator) * positions).long()
            seen = [rotate(queries, positions - keys, model.theta)[:, :, SINK_TOKENS:].flatten(1, 2)
                    for queries in layers]
            new = [vectors.mT @ vectors / vectors.shape[1] for vectors in seen]
            moments = new if moments is None else [a + b for a, b in zip(moments, new)]
            draws += 1
    return [moment / draws for moment in moments]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--caches", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    args = parser.parse_args()
    write_query_moments(query_moments(Model(), contexts_in(args.caches)), args.out)


def write_query_moments(moments, path):
    safetensors.torch.save_file(
        {f"layers.{i}.q_cov": moment.contiguous() for i, moment in enumerate(moments)}, path)


if __name__ == "__main__":
    main()
