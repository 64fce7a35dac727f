"""Caches of transformers: in and out of safetensors files."""
from __future__ import annotations

import os
from collections.abc import Sequence

import transformers

from sluice_kv.cache_file import CacheFile, Planes, read_planes, write_planes
from sluice_kv.dynamic_cache import cache_of, planes_of
from sluice_kv.geometry import Geometry

__all__ = ["cache_of", "planes_of", "read_cache", "write_cache"]


def write_cache(path: str | os.PathLike[str], cache: transformers.DynamicCache, geometry: Geometry,
                token_ids: Sequence[int], model: str, revision: str = "",
                adapter: str = "") -> None:
    """Writes a file that `sluice encode`, `put` and `calibrate` read."""
    write_planes(path, planes_of(cache), geometry, token_ids, model, revision, adapter)


def read_cache(path: str | os.PathLike[str]) -> tuple[transformers.DynamicCache, CacheFile]:
    """The cache in a file, and what the file says of it."""
    file = read_planes(path)
    return cache_of(file.planes), file
