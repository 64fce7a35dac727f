"""Layouts against what vLLM's own operator writes, and on tensors of every order of strides."""
import itertools
import random
import unittest

import torch
import vllm._custom_ops as ops

from sluice_kv.layout import PlaneLayout, UnknownLayout, layer_layouts

BLOCKS, HEADS = 3, 2


def read(flat: torch.Tensor, layout: PlaneLayout, tokens: int, dim: int) -> torch.Tensor:
    """[blocks * tokens, heads, dim] by the formula of node.proto."""
    element = flat.element_size()
    token_tile, dim_tile = layout.token_tile or tokens, layout.dim_tile or dim
    dim_stride = layout.dim_stride_bytes or element
    places = [layout.offset_bytes + b * layout.block_stride_bytes + h * layout.head_stride_bytes
              + t // token_tile * layout.token_tile_stride_bytes
              + t % token_tile * layout.token_stride_bytes
              + d // dim_tile * layout.dim_tile_stride_bytes + d % dim_tile * dim_stride
              for b, t, h, d in itertools.product(range(BLOCKS), range(tokens), range(HEADS),
                                                  range(dim))]
    return flat[torch.tensor(places) // element].view(BLOCKS * tokens, HEADS, dim)


class PackedForCpu(unittest.TestCase):
    def check(self, isa, dtype, tokens, dim):
        cache = torch.zeros(BLOCKS, HEADS, tokens, 2 * dim, dtype=dtype)
        key, value = (torch.randn(BLOCKS * tokens, HEADS, dim).to(dtype) for _ in range(2))
        halves = cache.view(BLOCKS, HEADS, 2 * tokens, dim).chunk(2, dim=2)
        ops.cpu_attn_reshape_and_cache(key, value, *halves, torch.arange(BLOCKS * tokens), isa)
        layouts = layer_layouts("CPU_ATTN", isa, tuple(cache.shape), cache.stride(),
                                cache.element_size())
        for layout, written in zip(layouts, (key, value)):
            self.assertTrue(torch.equal(read(cache.view(-1), layout, tokens, dim), written))

    def test_amx(self):
        if not torch.cpu._is_amx_tile_supported():
            self.skipTest("this processor has no AMX")
        for tokens, dim in ((128, 64), (32, 128), (64, 32)):
            with self.subTest(tokens=tokens, dim=dim):
                self.check("amx", torch.bfloat16, tokens, dim)

    def test_vec(self):
        for dtype, (tokens, dim) in itertools.product(
                (torch.float32, torch.bfloat16, torch.float16), ((128, 64), (64, 96))):
            with self.subTest(dtype=dtype, tokens=tokens, dim=dim):
                self.check("vec", dtype, tokens, dim)

    def test_vec16(self):
        for dtype, (tokens, dim) in itertools.product(
                (torch.float32, torch.bfloat16), ((16, 80), (48, 64), (128, 80))):
            with self.subTest(dtype=dtype, tokens=tokens, dim=dim):
                self.check("vec16", dtype, tokens, dim)

    def test_others_are_refused_by_name(self):
        with self.assertRaisesRegex(UnknownLayout, "neon"):
            layer_layouts("CPU_ATTN", "neon", (3, 2, 32, 128), (8192, 4096, 128, 1), 2)
        with self.assertRaisesRegex(UnknownLayout, "not contiguous"):
            layer_layouts("CPU_ATTN", "vec", (3, 2, 32, 128), (8192, 128, 256, 1), 2)


class Rows(unittest.TestCase):
    """The layouts of FlashAttention and its like, on tensors of the CPU."""

    TOKENS, DIM = 16, 8

    def check(self, backend, order):
        """`order`: the axes layers L, blocks B, heads H, tokens N, row C from the outermost."""
        sizes = {"L": 2, "B": BLOCKS, "H": HEADS, "N": self.TOKENS, "C": 2 * self.DIM}
        memory = torch.arange(torch.tensor(list(sizes.values())).prod(), dtype=torch.float32)
        all_layers = memory.view([sizes[axis] for axis in order]).permute(
            [order.index(axis) for axis in "LBHNC"])
        layer = all_layers[1]
        offset = (layer.data_ptr() - memory.data_ptr())
        key, value = layer.transpose(1, 2).split(self.DIM, -1)
        layouts = layer_layouts(backend, None, tuple(layer.shape), layer.stride(),
                                layer.element_size())
        for layout, part in zip(layouts, (key, value)):
            self.assertTrue(torch.equal(
                read(memory, layout.at(offset), self.TOKENS, self.DIM),
                part.reshape(BLOCKS * self.TOKENS, HEADS, self.DIM)), (backend, order))

    def test_all_orders(self):
        for backend in ("FLASH_ATTN", "TRITON_ATTN", "FLASHINFER"):
            for order in ("LBNHC", "LBHNC", "BLHNC", "BLNHC", "BHLNC", "LHBNC"):
                with self.subTest(backend=backend, order=order):
                    self.check(backend, order)

    def test_unknown_backend_is_refused_by_name(self):
        with self.assertRaisesRegex(UnknownLayout, "FLASHMLA"):
            layer_layouts("FLASHMLA", None, (3, 1, 64, 576), (36864, 36864, 576, 1), 2)
        with self.assertRaisesRegex(UnknownLayout, "shape"):
            layer_layouts("FLASH_ATTN", None, (2, 3, 64, 2, 64), (1, 1, 1, 1, 1), 2)


if __name__ == "__main__":
    random.seed(0)
    unittest.main()
