"""How long an engine takes to have plain elements in its blocks: those of 16 bits are scattered by
the engine's own operator, those of 8 bits get their scale first."""
import time

import torch
from vllm import _custom_ops as ops

from stand import CHUNK

RUNS = 5
LAYERS, HEADS, HEAD_DIM = 30, 3, 64  # SmolLM2-135M
BITS = {16: 16, 8: 8.08}  # an element with its share of the scale, one for a token of a plane


def num_bytes(kind, num_tokens):
    """Of a context's K and V on the wire."""
    return round(2 * LAYERS * HEADS * HEAD_DIM * num_tokens * BITS[kind] / 8)


def scatter_ms(kind, num_tokens):
    """Time of one core, whatever else the machine does; the best of some runs, all layers."""
    torch.set_num_threads(1)
    blocks = torch.zeros(LAYERS, num_tokens // CHUNK, HEADS, 2 * CHUNK, HEAD_DIM,
                         dtype=torch.bfloat16)
    slots = torch.arange(num_tokens)
    shape = (LAYERS, 2, num_tokens, HEADS, HEAD_DIM)
    if kind == 16:
        elements, scales = torch.randn(shape).bfloat16(), None
    else:
        elements = torch.randint(-127, 128, shape, dtype=torch.int8)
        scales = torch.rand(*shape[:3], 1, 1).bfloat16()
    return min(one_run(elements, scales, blocks, slots) for _ in range(RUNS))


def one_run(elements, scales, blocks, slots):
    began = time.process_time()
    for layer in range(LAYERS):
        planes = elements[layer] if scales is None else elements[layer].bfloat16() * scales[layer]
        keys, values = blocks[layer].chunk(2, dim=2)
        ops.cpu_attn_reshape_and_cache(planes[0], planes[1], keys, values, slots, "amx")
    return (time.process_time() - began) * 1e3
