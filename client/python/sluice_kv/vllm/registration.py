"""Where a worker's KV cache lives and how it is laid out, told to the node daemon.

Used by the worker's thread while the engine starts."""
from __future__ import annotations

import logging
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from vllm.config import get_layers_from_vllm_config
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

from sluice_kv.layout import PlaneLayout, UnknownLayout, layer_layouts
from sluice_kv.memory import SharedMemory, socket_group
from sluice_kv.node import NodeClient, PoolSpec
from sluice_kv.pool import RegisteredPool
from sluice_kv.vllm.config import Config
from sluice_kv.vllm.engine import engine_geometry, layer_names
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

    def holding(self, tensor: torch.Tensor) -> SharedMemory:
        """The memory that the tensor is in; the others are given back."""
        for memory in [m for m in self._memories if not m.contains(tensor)]:
            memory.close()
            self._memories.remove(memory)
        if not self._memories:
            raise UnknownLayout(f"the KV cache is on {tensor.device} and not in memory that can be "
                                "shared with the node daemon; engines on CPUs are supported")
        return self._memories[0]

    def close(self) -> None:
        for memory in self._memories:
            memory.close()
        self._memories = []


def make_worker(vllm_config: Any, kv_cache_config: Any, config: Config, memory: KvMemory,
                kv_caches: dict[str, torch.Tensor]) -> WorkerSide:
    """Raises UnknownLayout or UnsupportedModel, which name what is not known."""
    names = layer_names(kv_cache_config)
    layers = get_layers_from_vllm_config(vllm_config, AttentionLayerBase, names)
    shared = memory.holding(kv_caches[names[0]])
    planes: list[PlaneLayout] = []
    for name in names:
        tensor = kv_caches[name]
        layer = layers[name]
        if getattr(layer, "kv_sharing_target_layer_name", None):
            raise UnknownLayout(f"{name} uses the KV cache of another layer")
        backend = layer.get_attn_backend().get_name()
        isa = getattr(layer, "isa", None)
        offset = tensor.data_ptr() - shared.address
        planes += [plane.at(offset) for plane in layer_layouts(
            backend, isa, tuple(tensor.shape), tensor.stride(), tensor.element_size())]
    num_blocks, _, block_tokens, _ = kv_caches[names[0]].shape
    if block_tokens != vllm_config.cache_config.block_size:
        raise UnknownLayout(f"the attention backend splits blocks of "
                            f"{vllm_config.cache_config.block_size} tokens into {block_tokens}")
    spec = PoolSpec(shm_name=shared.name, pool_bytes=shared.num_bytes, num_blocks=num_blocks,
                    block_tokens=block_tokens, layouts=tuple(planes),
                    geometry=engine_geometry(vllm_config, kv_cache_config),
                    profile_id=config.profile_id)
    client = NodeClient(config.socket)
    pool = RegisteredPool(client, shared, spec)
    if not pool.wait(_START_WAIT_S):
        _LOG.warning("the node daemon at %s is not there yet; all is computed until it is",
                     config.socket)
    return WorkerSide(client, pool, config, block_tokens)
