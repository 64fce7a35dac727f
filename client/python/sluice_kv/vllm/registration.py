"""Where a worker's KV cache lives and how it is laid out, told to the node daemon.

Used by the worker's thread while the engine starts."""
from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from vllm.config import get_layers_from_vllm_config
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

from sluice_kv.layout import PlaneLayout, UnknownLayout, layer_layouts
from sluice_kv.memory import SharedMemory, socket_group
from sluice_kv.node import NodeClient, PoolSpec
from sluice_kv.pool import RegisteredPool
from sluice_kv.vllm.blocks import DirectBlocks, EngineBlocks, StagedBlocks
from sluice_kv.vllm.config import Config, ConfigError
from sluice_kv.vllm.engine import base_identity, engine_geometry, layer_names
from sluice_kv.vllm.worker import WorkerSide

_LOG = logging.getLogger("sluice_kv")
_START_WAIT_S = 5.0  # for a daemon that is there; without one the engine starts all the same


class KvMemory(TorchFunctionMode):
    """While it is entered, the engine's KV cache is made in shared memory instead of its own: vLLM
    allocates it as one tensor of zeros of int8."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._config = config
        self._memories: list[SharedMemory] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (func is torch.zeros and len(args) == 1 and isinstance(args[0], int)
                and kwargs.get("dtype") is torch.int8
                and torch.device(kwargs.get("device") or "cpu").type == "cpu"):
            memory = SharedMemory(args[0], socket_group(self._config.socket))
            self._memories.append(memory)
            return memory.tensor
        return func(*args, **kwargs)

    def holding(self, tensor: torch.Tensor) -> SharedMemory | None:
        """The memory that the tensor is in, if it is in any; the others are given back."""
        for memory in [m for m in self._memories if not m.contains(tensor)]:
            memory.close()
            self._memories.remove(memory)
        return self._memories[0] if self._memories else None

    def slots_for(self, caches: Sequence[torch.Tensor], most_mib: int
                  ) -> tuple[SharedMemory, list[torch.Tensor]]:
        """Memory for slots of blocks of all layers, at most one per block of the engine, and their
        tensors."""
        block = caches[0][0]
        if any(cache[0].shape != block.shape or cache.dtype != block.dtype for cache in caches):
            raise UnknownLayout("the layers' blocks differ in shape or type")
        block_bytes = block.numel() * block.element_size()
        num_slots = min(caches[0].shape[0], (most_mib << 20) // (block_bytes * len(caches)))
        if num_slots == 0:
            raise ConfigError(f"staging_mib is {most_mib}; a block of all layers has "
                              f"{block_bytes * len(caches)} bytes")
        memory = SharedMemory(num_slots * block_bytes * len(caches),
                              socket_group(self._config.socket))
        self._memories.append(memory)
        if block.device.type == "cuda":
            # Page-locked memory is copied at the speed of the bus; without it copies are slower.
            torch.cuda.cudart().cudaHostRegister(memory.address, memory.num_bytes, 0)
        slots = memory.tensor.view(block.dtype).view(len(caches), num_slots, *block.shape)
        return memory, list(slots)

    def close(self) -> None:
        for memory in self._memories:
            memory.close()
        self._memories = []


def make_worker(vllm_config: Any, kv_cache_config: Any, config: Config, memory: KvMemory,
                kv_caches: dict[str, torch.Tensor]) -> WorkerSide:
    """Raises UnknownLayout or UnsupportedModel, which name what is not known."""
    names = layer_names(kv_cache_config)
    caches = [kv_caches[name] for name in names]
    block_tokens = caches[0].shape[2]
    if block_tokens != vllm_config.cache_config.block_size:
        raise UnknownLayout(f"the attention backend splits blocks of "
                            f"{vllm_config.cache_config.block_size} tokens into {block_tokens}")
    blocks: EngineBlocks = DirectBlocks()
    shared = memory.holding(caches[0])
    if shared is None:
        shared, caches = memory.slots_for(caches, config.staging_mib)
        blocks = StagedBlocks([kv_caches[name] for name in names], caches)
    layers = get_layers_from_vllm_config(vllm_config, AttentionLayerBase, names)
    planes: list[PlaneLayout] = []
    for name, cache in zip(names, caches):
        planes += layer_planes(name, layers[name], cache, shared)
    spec = PoolSpec(shm_name=shared.name, pool_bytes=shared.pool_bytes,
                    num_blocks=caches[0].shape[0], block_tokens=block_tokens,
                    layouts=tuple(planes), geometry=engine_geometry(vllm_config, kv_cache_config),
                    profile_id=config.profile_id)
    client = NodeClient(config.socket)
    pool = RegisteredPool(client, shared, spec)
    if not pool.wait(_START_WAIT_S):
        _LOG.warning("the node daemon at %s is not there yet; all is computed until it is",
                     config.socket)
    own = base_identity(vllm_config, config, get_tensor_model_parallel_rank())
    return WorkerSide(client, pool, blocks, config, block_tokens, own.revision)


def layer_planes(name: str, layer: Any, cache: torch.Tensor, shared: SharedMemory
                 ) -> list[PlaneLayout]:
    """K and V of a layer whose blocks, or slots, are in shared memory."""
    if getattr(layer, "kv_sharing_target_layer_name", None):
        raise UnknownLayout(f"{name} uses the KV cache of another layer")
    offset = cache.data_ptr() - shared.address
    return [plane.at(offset) for plane in layer_layouts(
        layer.get_attn_backend().get_name(), getattr(layer, "isa", None), tuple(cache.shape),
        cache.stride(), cache.element_size())]
