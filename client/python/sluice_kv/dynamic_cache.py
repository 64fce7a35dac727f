"""Caches of transformers as planes of K and V, and back. Pure functions."""
from __future__ import annotations

import transformers

from sluice_kv.cache_file import Planes


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
