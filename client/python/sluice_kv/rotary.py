"""Rotary embeddings of a model: the angle per token of each pair of dimensions.

The numbers are part of a cache's identity bit by bit, so they are computed in double precision with
Python's own `**`, as the C++ side does (codec/geometry.cc MakeRotaryTable), and not with torch,
whose single precision depends on the processor. Pure functions and immutable values.
"""
from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from typing import Any

MAX_THETA = 1e12


class UnsupportedModel(ValueError):
    """Names what is not known about a model, and says what to do."""


class RotaryLayout(enum.IntEnum):
    """As in proto/sluice/v1/node.proto."""
    HALF = 1         # dimension d pairs with d + rotary_dim / 2
    INTERLEAVED = 2  # dimension 2 d pairs with 2 d + 1


@dataclasses.dataclass(frozen=True)
class RotaryTable:
    """Pair p of a token at position n is turned by n * inverse_frequencies[p] radians."""
    layout: RotaryLayout
    first_dim: int
    inverse_frequencies: tuple[float, ...]


def plain(theta: float, rotary_dim: int) -> list[float]:
    """The usual frequencies, bit for bit as MakeRotaryTable's."""
    return [theta ** (-2.0 * pair / rotary_dim) for pair in range(rotary_dim // 2)]


def _linear(parameters: Mapping[str, Any], usual: list[float]) -> list[float]:
    return [frequency / parameters["factor"] for frequency in usual]


def _llama3(parameters: Mapping[str, Any], usual: list[float]) -> list[float]:
    """Long waves are stretched, short ones stay, those between are blended."""
    factor, low, high, trained = (float(parameters[name]) for name in (
        "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"))

    def scaled(frequency: float) -> float:
        waves = trained * frequency / (2 * math.pi)  # in the context that the model was trained on
        if waves > high:
            return frequency
        if waves < low:
            return frequency / factor
        smooth = (waves - low) / (high - low)
        return (1 - smooth) * frequency / factor + smooth * frequency

    return [scaled(frequency) for frequency in usual]


def _yarn(parameters: Mapping[str, Any], usual: list[float]) -> list[float]:
    """Blends stretched and usual frequencies by pair, between two numbers of rotations."""
    factor, theta, trained = (float(parameters[name]) for name in (
        "factor", "rope_theta", "original_max_position_embeddings"))
    dim = 2 * len(usual)

    def pair_with(rotations: float) -> float:
        return dim * math.log(trained / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = pair_with(parameters.get("beta_fast") or 32)
    high = pair_with(parameters.get("beta_slow") or 1)
    if parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = high - low if high != low else 0.001

    def scaled(pair: int, frequency: float) -> float:
        stretched = min(max((pair - low) / width, 0.0), 1.0)
        return frequency / factor * stretched + frequency * (1 - stretched)

    return [scaled(pair, frequency) for pair, frequency in enumerate(usual)]


def _longrope(parameters: Mapping[str, Any], usual: list[float],
              max_model_len: int | None) -> list[float]:
    """A factor for each pair, of two lists: one for short contexts and one for long ones."""
    trained = parameters["original_max_position_embeddings"]
    if max_model_len is None:
        raise UnsupportedModel(
            f"rope_type \"longrope\" depends on the length of the context: say max_model_len "
            f"(at most {trained}: short factors, more: long ones)")
    factors = parameters["long_factor" if max_model_len > trained else "short_factor"]
    if len(factors) != len(usual):
        raise UnsupportedModel(f"rope_type \"longrope\" has {len(factors)} factors, not "
                               f"{len(usual)}; check the model's config.json")
    return [frequency / factor for frequency, factor in zip(usual, factors)]


def inverse_frequencies(parameters: Mapping[str, Any], head_dim: int,
                        max_model_len: int | None = None) -> tuple[float, ...]:
    """Frequencies of `rope_parameters` of a transformers config, as the model uses them."""
    kind = parameters.get("rope_type") or "default"
    theta = parameters.get("rope_theta")
    if not isinstance(theta, (int, float)) or not 0 < theta <= MAX_THETA:
        raise UnsupportedModel(f"rope_theta is {theta!r}; it must be a number above 0 and at most "
                               f"{MAX_THETA:g}: check the model's config.json")
    if parameters.get("mrope_section"):
        raise UnsupportedModel("rope_parameters has mrope_section: positions of pictures are not "
                               "token indices; serve this model without sluice")
    rotary_dim = int(head_dim * (parameters.get("partial_rotary_factor") or 1.0))
    if rotary_dim % 2 or not 0 < rotary_dim <= head_dim:
        raise UnsupportedModel(f"the rotary embedding turns {rotary_dim} of {head_dim} dimensions; "
                               "it must be an even number: check the model's config.json")
    usual = plain(float(theta), rotary_dim)
    try:
        if kind == "longrope":
            return tuple(_longrope(parameters, usual, max_model_len))
        scale = {"default": lambda _, same: same, "linear": _linear, "llama3": _llama3,
                 "yarn": _yarn}.get(kind)
        if scale is None:
            raise UnsupportedModel(
                f"rope_type \"{kind}\" is not known (default, linear, llama3, longrope and yarn "
                "are): serve this model without sluice")
        return tuple(scale(parameters, usual))
    except (KeyError, TypeError, ArithmeticError) as error:
        raise UnsupportedModel(f"rope_type \"{kind}\": {error!r} in rope_parameters; check the "
                               "model's config.json") from error
