"""Where the elements of a layer's K and V lie in an engine's memory.

Pure functions. A layout that is not known by name is refused: guessing would give wrong KV."""
from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from sluice_kv import wire


class UnknownLayout(ValueError):
    """The engine keeps its KV cache in a way that this package does not know."""


@dataclass(frozen=True)
class PlaneLayout:
    """Element (block b, token t, head h, dimension d) of a plane is at `offset_bytes`
    + b * block + h * head + (t // token_tile) * token_tile_stride + (t % token_tile) * token
    + (d // dim_tile) * dim_tile_stride + (d % dim_tile) * dim, as in PlaneLayout of node.proto;
    a tile of 0 is one tile of all, a dim stride of 0 the element's size. All in bytes."""
    offset_bytes: int
    block_stride_bytes: int
    token_stride_bytes: int
    head_stride_bytes: int
    token_tile: int = 0
    token_tile_stride_bytes: int = 0
    dim_tile: int = 0
    dim_tile_stride_bytes: int = 0
    dim_stride_bytes: int = 0

    def message(self) -> Any:
        return wire.message("PlaneLayout")(**{f.name: getattr(self, f.name) for f in fields(self)})

    def at(self, offset_bytes: int) -> "PlaneLayout":
        return replace(self, offset_bytes=self.offset_bytes + offset_bytes)


def split_rows(shape: tuple[int, ...], strides: tuple[int, ...], element: int
               ) -> tuple[PlaneLayout, PlaneLayout]:
    """K and V of a layer that is viewed as [blocks, heads, tokens, 2 * head_dim], K before V in
    each row: FlashAttention, Triton and FlashInfer, whatever the order of the strides (NHD, HND,
    blocks or layers outermost)."""
    _, _, _, row = shape
    block, head, token, dim = strides
    if dim != 1:
        raise UnknownLayout(f"rows are not contiguous: strides {strides} of shape {shape}")
    key = PlaneLayout(0, block * element, token * element, head * element)
    return key, key.at(row // 2 * element)


def packed_for_cpu(isa: str, shape: tuple[int, ...], strides: tuple[int, ...], element: int
                   ) -> tuple[PlaneLayout, PlaneLayout]:
    """K and V of a layer of vLLM's CPU backend, viewed as [blocks, heads, tokens, 2 * head_dim]: in
    truth all K of a (block, head) and then all V, both packed for the instruction set `isa`."""
    _, _, tokens, row = shape
    dim = row // 2
    block, head, *inner = strides
    if inner != [row, 1]:
        raise UnknownLayout(f"a head's part of a block is not contiguous: strides {strides}")
    place = PlaneLayout(0, block * element, 0, head * element)
    values = tokens * dim * element  # V comes after the K of a (block, head)
    if isa == "amx":  # pairs of elements of 16 tokens (K), of 16 dimensions (V) side by side
        key = replace(place, token_tile=16, token_tile_stride_bytes=16 * dim * element,
                      token_stride_bytes=2 * element, dim_tile=2,
                      dim_tile_stride_bytes=32 * element, dim_stride_bytes=element)
        value = replace(place, token_tile=2, token_tile_stride_bytes=32 * element,
                        token_stride_bytes=element, dim_tile=16,
                        dim_tile_stride_bytes=16 * tokens * element, dim_stride_bytes=2 * element)
    elif isa in ("vec", "vec16"):  # K transposed, V in rows
        key = replace(place, token_stride_bytes=element, dim_stride_bytes=tokens * element)
        value = replace(place, token_stride_bytes=dim * element)
    else:
        raise UnknownLayout(f"the CPU layout {isa!r} is not known; amx, vec and vec16 are")
    return key, value.at(values)


# Attention backends of vLLM whose KV cache is as split_rows says.
ROW_BACKENDS = ("FLASH_ATTN", "TRITON_ATTN", "FLASHINFER")


def layer_layouts(backend: str, isa: str | None, shape: tuple[int, ...], strides: tuple[int, ...],
                  element: int) -> tuple[PlaneLayout, PlaneLayout]:
    """K and V of one layer's tensor of the named attention backend."""
    if len(shape) != 4:
        raise UnknownLayout(f"{backend} has a KV cache of shape {shape}; [blocks, heads, tokens, "
                            "2 * head_dim] is expected")
    if backend == "CPU_ATTN":
        return packed_for_cpu(isa or "", shape, strides, element)
    if backend in ROW_BACKENDS:
        return split_rows(shape, strides, element)
    known = ", ".join(("CPU_ATTN", *ROW_BACKENDS))
    raise UnknownLayout(f"the KV cache of the attention backend {backend} is not known; {known} "
                        "are. Choose one of them with --attention-backend")
