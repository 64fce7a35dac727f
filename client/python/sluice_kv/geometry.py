"""The shapes of a model's KV cache: its planes, their element types and rotary embeddings.

Maps one to one to the messages of proto/sluice/v1/node.proto. Immutable values.
"""
from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from sluice_kv.rotary import RotaryLayout, RotaryTable, UnsupportedModel, inverse_frequencies

__all__ = ["ElementType", "Geometry", "PlaneKind", "PlaneSpec", "RotaryLayout", "RotaryTable",
           "UnsupportedModel", "element_type", "geometry_of"]


class ElementType(enum.IntEnum):
    """As in node.proto."""
    BF16 = 1
    FP16 = 2
    FP32 = 3
    FP8_E4M3 = 4
    FP8_E5M2 = 5
    BYTES = 6


class PlaneKind(enum.IntEnum):
    """As in node.proto."""
    KEY = 1  # after the rotary embedding
    VALUE = 2
    LATENT = 3
    OPAQUE = 4


@dataclasses.dataclass(frozen=True)
class PlaneSpec:
    """One plane, [num_heads, num_tokens, head_dim]."""
    kind: PlaneKind
    model_layer: int
    num_heads: int
    head_dim: int
    element_type: ElementType
    rotary_table: int | None = None  # index into Geometry.rotary_tables; None: not rotated


@dataclasses.dataclass(frozen=True)
class Geometry:
    """Planes in the order of model layers, keys before values."""
    planes: tuple[PlaneSpec, ...]
    rotary_tables: tuple[RotaryTable, ...]


_ELEMENT_TYPES = {
    "bfloat16": ElementType.BF16, "float16": ElementType.FP16, "half": ElementType.FP16,
    "float32": ElementType.FP32, "float": ElementType.FP32,
    "fp8": ElementType.FP8_E4M3, "fp8_e4m3": ElementType.FP8_E4M3,
    "float8_e4m3fn": ElementType.FP8_E4M3,
    "fp8_e5m2": ElementType.FP8_E5M2, "float8_e5m2": ElementType.FP8_E5M2,
}

# Models whose caches are understood; tests/python/geometry_test.py turns back the keys of each.
# All pair dimension d with d + rotary_dim / 2.
KNOWN_MODELS = frozenset((
    "gemma", "gemma2", "gemma3_text", "gpt_neox", "llama", "mistral", "mixtral", "olmo2", "phi",
    "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3", "starcoder2"))

# What a config says of caches that are not planes of K and V with a position per token.
_FOREIGN = (
    ("kv_lora_rank", "multi-head latent attention"),
    ("alibi", "ALiBi, which has no rotary embedding"),
    ("dual_chunk_attention_config", "dual chunk attention, which turns keys by chunk"),
    ("num_kv_shared_layers", "layers that share a cache"),
)
_KNOWN_LAYER_TYPES = ("full_attention", "sliding_attention")


def element_type(dtype: object) -> ElementType:
    """Of a torch dtype, or the name of one or of a cache dtype of vLLM."""
    name = str(dtype).removeprefix("torch.")
    if name not in _ELEMENT_TYPES:
        raise UnsupportedModel(f"dtype {name} of the cache is not known; use one of "
                               f"{', '.join(sorted(_ELEMENT_TYPES))}")
    return _ELEMENT_TYPES[name]


def _check_known(config: Any) -> None:
    model_type = getattr(config, "model_type", None)
    for field, meaning in _FOREIGN:
        if value := getattr(config, field, None):
            shown = f" {value}" if isinstance(value, int) and not isinstance(value, bool) else ""
            raise UnsupportedModel(f"model type \"{model_type}\" has {meaning} ({field}{shown}): "
                                   "serve this model without sluice")
    for layer, kind in enumerate(getattr(config, "layer_types", None) or ()):
        if kind not in _KNOWN_LAYER_TYPES:
            raise UnsupportedModel(
                f"model type \"{model_type}\" has a layer of type {kind} (layer {layer}), not "
                f"{' or '.join(_KNOWN_LAYER_TYPES)}: serve this model without sluice")
    if model_type not in KNOWN_MODELS:
        raise UnsupportedModel(
            f"model type \"{model_type}\" is not known: serve this model without sluice, or add it "
            "to geometry.py if tests/python/geometry_test.py passes with it (known: "
            f"{', '.join(sorted(KNOWN_MODELS))})")


def _rope_parameters(config: Any, layer: int) -> Mapping[str, Any] | None:
    """Of one model layer; None if its keys are not rotated."""
    rotated = getattr(config, "no_rope_layers", None)  # 1 for layers that are, for all its name
    if rotated is not None and not rotated[layer]:
        return None
    parameters = getattr(config, "rope_parameters", None)
    if not parameters:
        raise UnsupportedModel(f"the config of model type \"{config.model_type}\" has no "
                               "rope_parameters: use transformers 5 or newer to read it")
    kinds = getattr(config, "layer_types", None)
    if kinds and isinstance(parameters.get(kinds[layer]), Mapping):
        parameters = parameters[kinds[layer]]
    own: Mapping[str, Any] = parameters
    return own


def _kv_heads(config: Any, divisor: int) -> int:
    heads = int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)
    if divisor >= heads and divisor % heads == 0:
        return 1  # several ranks hold the same head
    if divisor < 1 or heads % divisor:
        raise UnsupportedModel(f"{heads} KV heads cannot be shared by {divisor} ranks; use a "
                               "tensor parallel size that divides the number of heads")
    return heads // divisor


def geometry_of(hf_config: Any, dtype: object, layers: range | None = None,
                kv_heads_divisor: int = 1, max_model_len: int | None = None) -> Geometry:
    """The cache of one rank that serves a model, of its transformers config.

    `layers`: model layers of the rank (pipeline parallel), all by default. `kv_heads_divisor`: the
    number of ranks that share the KV heads (tensor parallel). `max_model_len`: the longest context
    that the engine is set up for; only models whose embedding depends on it need it.
    """
    config = hf_config.get_text_config() if hasattr(hf_config, "get_text_config") else hf_config
    _check_known(config)
    element = element_type(dtype)
    num_heads = _kv_heads(config, kv_heads_divisor)
    head_dim = int(getattr(config, "head_dim", None)
                   or config.hidden_size // config.num_attention_heads)
    planes: list[PlaneSpec] = []
    tables: list[RotaryTable] = []  # each once, in the order in which planes first use them
    for layer in range(config.num_hidden_layers) if layers is None else layers:
        index = None
        parameters = _rope_parameters(config, layer)
        if parameters is not None:
            table = RotaryTable(RotaryLayout.HALF, 0,
                                inverse_frequencies(parameters, head_dim, max_model_len))
            if table not in tables:
                tables.append(table)
            index = tables.index(table)
        planes.append(PlaneSpec(PlaneKind.KEY, layer, num_heads, head_dim, element, index))
        planes.append(PlaneSpec(PlaneKind.VALUE, layer, num_heads, head_dim, element))
    return Geometry(tuple(planes), tuple(tables))
