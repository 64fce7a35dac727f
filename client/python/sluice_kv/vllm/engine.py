"""What the connector knows of the engine that it serves: geometry, identity, parallel place.

Both halves of the connector, in their own processes, get the same answers from here."""
from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import torch
from vllm.model_executor.models.utils import extract_layer_index
from vllm.v1.kv_cache_interface import FullAttentionSpec

from sluice_kv.geometry import Geometry, UnsupportedModel, geometry_of
from sluice_kv.identity import model_name, revision
from sluice_kv.node import Identity
from sluice_kv.vllm.config import Config, ConfigError


@dataclass(frozen=True)
class EngineFacts:
    """What the scheduler's half needs to know."""
    identity: Identity  # of worker 0, before adapter and salt
    geometry: Geometry  # of one worker
    block_tokens: int
    num_workers: int
    may_load: bool
    may_save: bool

    @classmethod
    def of(cls, vllm_config: Any, kv_cache_config: Any, config: Config) -> "EngineFacts":
        transfer = vllm_config.kv_transfer_config
        return cls(identity=base_identity(vllm_config, config, rank=0),
                   geometry=engine_geometry(vllm_config, kv_cache_config),
                   block_tokens=vllm_config.cache_config.block_size,
                   num_workers=vllm_config.parallel_config.tensor_parallel_size,
                   may_load=transfer.is_kv_consumer, may_save=transfer.is_kv_producer)


def check_engine(vllm_config: Any, config: Config) -> None:
    """Raises ConfigError for what cannot work."""
    transfer = vllm_config.kv_transfer_config
    if transfer.kv_load_failure_policy != "recompute":
        raise ConfigError('set "kv_load_failure_policy": "recompute" in --kv-transfer-config: '
                          "Sluice says which part of a context is faster computed than loaded, and "
                          "the policy 'fail' would end such requests with an error")
    if vllm_config.parallel_config.pipeline_parallel_size > 1:
        raise ConfigError("pipeline parallel engines are not supported; use tensor parallel ones")
    if getattr(vllm_config.parallel_config, "prefill_context_parallel_size", 1) > 1 or getattr(
            vllm_config.parallel_config, "decode_context_parallel_size", 1) > 1:
        raise ConfigError("context parallel engines are not supported")
    block_tokens = vllm_config.cache_config.block_size
    if config.chunk_tokens % block_tokens != 0:
        raise ConfigError(f"chunk_tokens is {config.chunk_tokens}, not a multiple of the engine's "
                          f"block size {block_tokens}")


def layer_names(kv_cache_config: Any) -> list[str]:
    """The layers with a KV cache, in the model's order."""
    groups = kv_cache_config.kv_cache_groups
    if len(groups) != 1:
        raise UnsupportedModel(f"the engine keeps {len(groups)} groups of KV caches, not one")
    return sorted(groups[0].layer_names, key=extract_layer_index)


def element_dtype(vllm_config: Any, kv_cache_config: Any) -> torch.dtype:
    """Type of the elements of the KV cache."""
    spec = layer_spec(kv_cache_config)
    if vllm_config.cache_config.cache_dtype not in ("auto", "bfloat16", "float16"):
        raise UnsupportedModel(f"the KV cache has the type {vllm_config.cache_config.cache_dtype}; "
                               "use --kv-cache-dtype auto")
    return spec.dtype


def layer_spec(kv_cache_config: Any) -> FullAttentionSpec:
    """Shape of each layer's blocks."""
    spec = kv_cache_config.kv_cache_groups[0].kv_cache_spec
    if type(spec) is not FullAttentionSpec:
        raise UnsupportedModel(f"KV caches of the kind {type(spec).__name__} are not supported; "
                               "FullAttentionSpec is")
    return spec


def engine_geometry(vllm_config: Any, kv_cache_config: Any) -> Geometry:
    """Of one worker's blocks."""
    names = layer_names(kv_cache_config)
    spec = layer_spec(kv_cache_config)
    hf_config = vllm_config.model_config.hf_text_config
    indices = [extract_layer_index(name) for name in names]
    if indices != list(range(len(names))):
        raise UnsupportedModel(f"layers {indices} have a KV cache; all from 0 on are expected")
    geometry = geometry_of(hf_config, element_dtype(vllm_config, kv_cache_config),
                           range(len(names)), vllm_config.parallel_config.tensor_parallel_size,
                           vllm_config.model_config.max_model_len)
    for plane in geometry.planes:
        if (plane.num_heads, plane.head_dim) != (spec.num_kv_heads, spec.head_size):
            raise UnsupportedModel(
                f"the engine keeps {spec.num_kv_heads} heads of {spec.head_size}, the model's "
                f"configuration says {plane.num_heads} of {plane.head_dim}")
    return geometry


def base_identity(vllm_config: Any, config: Config, rank: int) -> Identity:
    """Of the engine's contexts, before a request's adapter and salt."""
    model = vllm_config.model_config
    parallel = vllm_config.parallel_config
    text = config.revision or (
        revision(model.model, model.dtype, model.quantization) + _overrides(model))
    if parallel.tensor_parallel_size > 1:
        text += f"/tp{rank}of{parallel.tensor_parallel_size}"
    return Identity(model=config.model or model_name(model.model), revision=text,
                    tenant=config.tenant, chunk_tokens=config.chunk_tokens)


def _overrides(model: Any) -> str:
    """What the engine's arguments change of the model's configuration, such as another rotary
    embedding."""
    if not model.hf_overrides:
        return ""
    if callable(model.hf_overrides):
        raise ConfigError("hf_overrides is a function; set revision in kv_connector_extra_config "
                          "to a name of what it makes of the model")
    text = json.dumps(model.hf_overrides, sort_keys=True, default=str)
    return "/" + hashlib.sha256(text.encode()).hexdigest()[:16]
