"""Caches of transformers: in and out of safetensors files, and through the node daemon."""
from __future__ import annotations

import os
from collections.abc import Sequence

import transformers

from sluice_kv.cache_file import CacheFile, Planes, read_planes, write_planes
from sluice_kv.geometry import Geometry


def planes_of(cache: transformers.DynamicCache) -> Planes:
    """(K, V) by model layer, [heads, tokens, dim]; views of a cache of one sequence."""
    planes = []
    for index, layer in enumerate(cache.layers):
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if keys is None or values is None:
            raise ValueError(f"layer {index} of the cache has no keys and values; only caches of "
                             "plain attention can be stored")
        if keys.shape[0] != 1:
            raise ValueError(f"the cache is of {keys.shape[0]} sequences; store them one by one")
        planes.append((keys[0], values[0]))
    if len({keys.shape[1] for keys, _ in planes}) > 1:
        raise ValueError("the cache has dropped the tokens behind a sliding window; let the model "
                         "fill a DynamicCache() that was made without its config")
    return planes


def cache_of(planes: Planes) -> transformers.DynamicCache:
    """A cache that `model(..., past_key_values=cache)` goes on from."""
    cache = transformers.DynamicCache()
    for layer, (keys, values) in enumerate(planes):
        cache.update(keys.unsqueeze(0), values.unsqueeze(0), layer)
    return cache


def write_cache(path: str | os.PathLike[str], cache: transformers.DynamicCache, geometry: Geometry,
                token_ids: Sequence[int], model: str, revision: str = "",
                adapter: str = "") -> None:
    """Writes a file that `sluice encode`, `put` and `calibrate` read."""
    write_planes(path, planes_of(cache), geometry, token_ids, model, revision, adapter)


def read_cache(path: str | os.PathLike[str]) -> tuple[transformers.DynamicCache, CacheFile]:
    """The cache in a file, and what the file says of it."""
    file = read_planes(path)
    return cache_of(file.planes), file
