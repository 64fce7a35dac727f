"""Caches of transformers: in and out of safetensors files, and through the node daemon."""
from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Sequence
from typing import Any

import torch
import transformers

from sluice_kv import identity
from sluice_kv.cache_file import CacheFile, Planes, read_planes, write_planes
from sluice_kv.dynamic_cache import cache_of, planes_of
from sluice_kv.geometry import Geometry, geometry_of
from sluice_kv.layout import PlaneLayout
from sluice_kv.memory import SharedMemory, socket_group
from sluice_kv.node import Identity, NodeClient, PoolSpec, SaveResult
from sluice_kv.pool import RegisteredPool

__all__ = ["Loaded", "SluiceCache", "cache_of", "planes_of", "read_cache", "write_cache"]


def write_cache(path: str | os.PathLike[str], cache: transformers.DynamicCache, geometry: Geometry,
                token_ids: Sequence[int], model: str, revision: str = "",
                adapter: str = "") -> None:
    """Writes a file that `sluice encode`, `put` and `calibrate` read."""
    write_planes(path, planes_of(cache), geometry, token_ids, model, revision, adapter)


def read_cache(path: str | os.PathLike[str]) -> tuple[transformers.DynamicCache, CacheFile]:
    """The cache in a file, and what the file says of it."""
    file = read_planes(path)
    return cache_of(file.planes), file


@dataclasses.dataclass(frozen=True)
class Loaded:
    """What was loaded: the first tokens of a context, without a gap."""
    cache: transformers.DynamicCache  # of the first num_tokens tokens; the model computes the rest
    num_tokens: int
    levels: tuple[int, ...]  # of each chunk; 255 is lossless


class SluiceCache:
    """Stores and loads the caches of a model through the node daemon of this host.

        store = SluiceCache("/run/sluice/node.sock", model)
        loaded = store.load(token_ids, slo_ms=500)
        out = model(torch.tensor([token_ids[loaded.num_tokens:]]), past_key_values=loaded.cache)
        store.store(out.past_key_values, token_ids)

    Thread-safe: one load or store at a time, others wait. Without a daemon nothing is loaded.
    """

    def __init__(self, socket: str, model: Any, *, capacity_tokens: int = 1 << 15,
                 adapter: str = "", tenant: str = "", salt: str = "", chunk_tokens: int = 256,
                 profile_id: bytes = b"", wait_s: float = 5.0) -> None:
        """`model`: as from_pretrained made it, which names its weights. `capacity_tokens`: of the
        longest context, which is kept in shared memory. `adapter`: adapter_digest of a LoRA that
        the model has. Waits `wait_s` at most for the daemon."""
        config, dtype, path = model.config, model.dtype, model.name_or_path
        commit = getattr(config, "_commit_hash", None)  # of a model that was named by an id
        self.identity = Identity(
            identity.model_name(path),
            identity.revision(path, dtype, identity.quantization_of(config), commit), adapter,
            tenant, salt, chunk_tokens)
        self.geometry = geometry_of(config, dtype, max_model_len=capacity_tokens)
        self._device, self._lock = model.device, threading.Lock()
        num_blocks = -(-capacity_tokens // chunk_tokens)
        self._capacity_tokens = num_blocks * chunk_tokens
        layouts, num_bytes = self._layouts(dtype.itemsize)
        self._memory = SharedMemory(num_bytes, socket_group(socket))
        self._planes = self._views(dtype)
        self._client = NodeClient(socket)
        self._pool = RegisteredPool(self._client, self._memory, PoolSpec(
            "", self._memory.pool_bytes, num_blocks, chunk_tokens, self.geometry, layouts,
            profile_id))
        self.wait(wait_s)

    def wait(self, timeout_s: float) -> bool:
        """Waits until the daemon knows the memory; False if it does not in time."""
        return self._pool.wait(timeout_s)

    def _layouts(self, element_bytes: int) -> tuple[tuple[PlaneLayout, ...], int]:
        """Each plane as [heads, capacity, dim], one after the other; and the bytes of all."""
        layouts, offset = [], 0
        for plane in self.geometry.planes:
            token = plane.head_dim * element_bytes
            head = token * self._capacity_tokens
            layouts.append(PlaneLayout(offset, token * self.identity.chunk_tokens, token, head))
            offset += head * plane.num_heads
        return tuple(layouts), offset

    def _views(self, dtype: torch.dtype) -> Planes:
        planes, rest = [], self._memory.tensor.view(dtype)
        for plane in self.geometry.planes:
            count = plane.num_heads * self._capacity_tokens * plane.head_dim
            planes.append(rest[:count].view(plane.num_heads, self._capacity_tokens, plane.head_dim))
            rest = rest[count:]
        return list(zip(planes[::2], planes[1::2]))

    def store(self, cache: transformers.DynamicCache, token_ids: Sequence[int], *,
              lossless: bool = False, timeout_s: float = 60.0) -> SaveResult:
        """Stores the full chunks of a context; returns when they are durable, or did not become so.
        The cache may be shorter than the context, and its last chunk too short to be stored."""
        planes = planes_of(cache)
        chunk = self.identity.chunk_tokens
        count = min(len(token_ids), planes[0][0].shape[1]) // chunk * chunk
        if count > self._capacity_tokens:
            raise ValueError(f"the context has {count} tokens; capacity_tokens is "
                             f"{self._capacity_tokens}: make SluiceCache with more")
        if count == 0:
            return SaveResult(True, message=f"shorter than a chunk of {chunk} tokens")
        with self._lock:
            for pair, own in zip(planes, self._planes, strict=True):
                for plane, memory in zip(pair, own):
                    memory[:, :count].copy_(plane[:, :count])
            pool_id, _ = self._pool.current
            if pool_id is None:
                return SaveResult(False, message="the node daemon does not know the pool")
            copied = threading.Event()
            saved = self._client.save(
                self.identity, pool_id, list(token_ids[:count]), list(range(count // chunk)),
                lossless=lossless, timeout_s=timeout_s, on_copied=copied.set)
            if not copied.is_set():  # the daemon may still read: let it have the old memory
                self._pool.fence()
            return saved

    def load(self, token_ids: Sequence[int], slo_ms: int, level: int | None = None) -> Loaded:
        """Loads what arrives of a context within the time limit, by whole chunks. The last token is
        never loaded, as the model must compute one to go on. `level`: the only one wanted (255 is
        lossless); otherwise the best that time allows."""
        chunk = self.identity.chunk_tokens
        count = min(len(token_ids) - 1, self._capacity_tokens) // chunk * chunk
        with self._lock:
            pool_id, _ = self._pool.current
            if pool_id is None or count <= 0:
                return Loaded(transformers.DynamicCache(), 0, ())
            result = self._client.load(self.identity, pool_id, list(token_ids[:count]),
                                       list(range(count // chunk)), slo_ms,
                                       tail_tokens=len(token_ids) - count, level=level)
            if not result.confirmed:  # the daemon may still write: into the old memory
                self._pool.fence()
            levels = tuple(level for level in result.levels[:result.prefix_chunks]
                           if level is not None)
            count = len(levels) * chunk
            if count == 0:
                return Loaded(transformers.DynamicCache(), 0, ())
            cache = cache_of([(keys[:, :count].to(self._device, copy=True),
                               values[:, :count].to(self._device, copy=True))
                              for keys, values in self._planes])
            return Loaded(cache, count, levels)

    def close(self) -> None:
        """Has the daemon forget the memory. What was loaded stays."""
        self._pool.close()
        self._client.close()
        self._memory.close()
