"""KV caches as safetensors files, as the command-line tool reads and writes them.

Names of tensors and metadata: client/cli/README.md. Thread-safe: no state. Blocks on the disk.
"""
from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

import safetensors
import safetensors.torch
import torch

from sluice_kv.geometry import ElementType, Geometry, PlaneKind, RotaryLayout, RotaryTable

Planes = list[tuple[torch.Tensor, torch.Tensor]]  # (K, V) by model layer, [heads, tokens, dim]

DTYPES = {ElementType.BF16: torch.bfloat16, ElementType.FP16: torch.float16,
          ElementType.FP32: torch.float32, ElementType.FP8_E4M3: torch.float8_e4m3fn,
          ElementType.FP8_E5M2: torch.float8_e5m2}


class CacheFileError(ValueError):
    """Names the file and the tensor or field, and says what is wrong and what to do."""


@dataclasses.dataclass(frozen=True)
class CacheFile:
    """A cache as it was read."""
    planes: Planes
    token_ids: list[int]  # one per token, or none if the file has none
    metadata: dict[str, str]


def _table_metadata(table: RotaryTable | None) -> dict[str, str]:
    if table is None:
        return {"rope_theta": "0"}
    return {"rope_layout": "half" if table.layout == RotaryLayout.HALF else "interleaved",
            "rope_inv_freq": json.dumps(table.inverse_frequencies),  # reads back bit for bit
            "rope_first_dim": str(table.first_dim)}


def rotary_metadata(geometry: Geometry) -> dict[str, str]:
    """How the keys were rotated; once if all of them alike, else for every layer."""
    tables = {plane.model_layer: None if plane.rotary_table is None
              else geometry.rotary_tables[plane.rotary_table]
              for plane in geometry.planes if plane.kind == PlaneKind.KEY}
    if len(set(tables.values())) == 1:
        return _table_metadata(tables[geometry.planes[0].model_layer])
    return {f"layers.{layer}.{name}": text for layer, table in tables.items()
            for name, text in _table_metadata(table).items()}


def _check_planes(path: Path, planes: Planes, geometry: Geometry, num_tokens: int) -> None:
    flat = [plane for pair in planes for plane in pair]
    if len(flat) != len(geometry.planes):
        raise CacheFileError(f"{path}: the cache has {len(flat)} planes, but its geometry "
                             f"{len(geometry.planes)}; give the geometry of this model")
    for tensor, spec in zip(flat, geometry.planes):
        have = (*tensor.shape, tensor.dtype)
        want = (spec.num_heads, num_tokens, spec.head_dim, DTYPES.get(spec.element_type))
        if have != want:
            raise CacheFileError(f"{path}: the {spec.kind.name.lower()}s of layer "
                                 f"{spec.model_layer} are {have}, not {want}; give the geometry "
                                 "of this model and one id per token")


def write_planes(path: str | os.PathLike[str], planes: Planes, geometry: Geometry,
                 token_ids: Sequence[int], model: str, revision: str = "",
                 adapter: str = "") -> None:
    """Writes under another name beside `path` first, so that no half file is ever there."""
    path = Path(path)
    _check_planes(path, planes, geometry, len(token_ids))
    tensors = {f"layers.{layer}.{kind}": plane.contiguous()
               for layer, pair in enumerate(planes) for kind, plane in zip("kv", pair)}
    metadata = {"token_ids": json.dumps(list(token_ids)), "model": model, "revision": revision,
                "adapter": adapter, **rotary_metadata(geometry)}
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        safetensors.torch.save_file(tensors, part, metadata)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_planes(path: str | os.PathLike[str]) -> CacheFile:
    """Reads a cache of keys and values that is whole."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except safetensors.SafetensorError as error:
        raise CacheFileError(f"{path}: is no safetensors file ({error})") from error
    missing = metadata.get("sluice_missing_chunks", "[]")
    if json.loads(missing):
        raise CacheFileError(f"{path}: chunks {missing} of the context are missing in this file; "
                             "fetch it again whole")
    names = [(f"layers.{layer}.k", f"layers.{layer}.v") for layer in range(len(tensors) // 2)]
    if not names or set(tensors) != {name for pair in names for name in pair}:
        raise CacheFileError(f"{path}: must have the tensors layers.{{i}}.k and layers.{{i}}.v, i "
                             "from 0, and no others")
    return CacheFile([(tensors[k], tensors[v]) for k, v in names],
                     json.loads(metadata.get("token_ids", "[]")), metadata)
