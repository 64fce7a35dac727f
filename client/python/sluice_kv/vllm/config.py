"""The connector's settings, from `kv_connector_extra_config` and from single requests."""
from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sluice_kv.node import LOSSLESS, MAX_LEVEL

MAX_SLO_MS = 600_000
_PROFILE_MAGIC = b"SLPF"
_NUM_BLOCK_SHARES = (0.0, 1.0)


class ConfigError(ValueError):
    """A setting that cannot be; says which, and what can."""


@dataclass(frozen=True)
class Config:
    """One engine's settings."""
    socket: str = "/run/sluice/node.sock"
    slo_ms: int = 2000  # limit on the time to first token of requests that name none
    load_async: bool = True  # False: a load holds up the whole batch of its step
    lookup_ms: int = 50  # longest wait for a look-up
    level: int | None = None  # only this level (LOSSLESS too); None: the best that the SLO allows
    save: bool = True
    save_lossless: bool = False  # keep the lossless level too
    save_timeout_s: float = 60.0  # after that the daemon is cut off from the blocks of a save
    save_blocks_share: float = 0.25  # of the engine's blocks, that saves may hold at a time
    chunk_tokens: int = 256
    profile_id: bytes = b""  # empty: the built-in profile
    staging: bool = False  # slots even where the daemon could reach the engine's blocks
    staging_mib: int = 4096  # most memory for slots, of an engine whose KV cache is on a device
    tenant: str = ""
    model: str = ""  # empty: from the engine's model
    revision: str = ""  # empty: a digest of the weights

    @classmethod
    def parse(cls, extra: dict[str, Any]) -> "Config":
        """Raises ConfigError that names the setting."""
        known = {f.name for f in fields(cls)} - {"profile_id"} | {"profile"}
        for name in extra:
            if name not in known:
                raise ConfigError(f"kv_connector_extra_config has no setting {name!r}; there are "
                                  + ", ".join(sorted(known)))
        values = dict(extra)
        if "profile" in values:
            values["profile_id"] = _profile_id(values.pop("profile"))
        if "level" in values:
            values["level"] = parse_level(values["level"])
        config = cls(**values)
        config._check()
        return config

    def _check(self) -> None:
        check_slo(self.slo_ms)
        for name in ("socket", "tenant", "model", "revision"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"{name} must be a string")
        for name in ("load_async", "save", "save_lossless", "staging"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be true or false")
        _check_number("lookup_ms", self.lookup_ms, 1, 10_000)
        _check_number("save_timeout_s", self.save_timeout_s, 1, 3600)
        _check_number("save_blocks_share", self.save_blocks_share, *_NUM_BLOCK_SHARES)
        _check_number("staging_mib", self.staging_mib, 1, 1 << 20)
        _check_number("chunk_tokens", self.chunk_tokens, 16, 4096)


@dataclass(frozen=True)
class RequestSettings:
    """What a request says in `kv_transfer_params`, and the engine's settings for the rest."""
    slo_ms: int
    level: int | None
    load: bool = True
    save: bool = True

    @classmethod
    def of(cls, params: dict[str, Any] | None, config: Config) -> "RequestSettings":
        """Raises ConfigError; keys that other connectors know are left alone."""
        params = params or {}
        if not isinstance(params, dict):
            raise ConfigError(f"an object is expected, not {params!r}")
        for name in ("load", "save"):
            if not isinstance(params.get(name, True), bool):
                raise ConfigError(f"{name} must be true or false, not {params[name]!r}")
        slo_ms = params.get("slo_ms", config.slo_ms)
        check_slo(slo_ms)
        level = parse_level(params["level"]) if "level" in params else config.level
        return cls(slo_ms=slo_ms, level=level, load=params.get("load", True),
                   save=params.get("save", config.save))


def check_slo(slo_ms: Any) -> None:
    """Raises ConfigError."""
    _check_number("slo_ms", slo_ms, 1, MAX_SLO_MS)
    if not isinstance(slo_ms, int):
        raise ConfigError(f"slo_ms must be a whole number, not {slo_ms!r}")


def parse_level(level: Any) -> int | None:
    """0.., "lossless", or "adaptive" (None) for the best that the SLO allows."""
    if level in (None, "adaptive"):
        return None
    if level == "lossless":
        return LOSSLESS
    if isinstance(level, int) and not isinstance(level, bool) and 0 <= level <= MAX_LEVEL:
        return level
    raise ConfigError(f'level must be "adaptive", "lossless" or a number from 0 to {MAX_LEVEL}, '
                      f"not {level!r}")


def _check_number(name: str, value: Any, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise ConfigError(f"{name} must be a number from {least:g} to {most:g}, not {value!r}")


def _profile_id(profile: Any) -> bytes:
    """Of a profile's file, or of its id in hexadecimal as `sluice profile ls` prints it."""
    text = str(profile)
    if len(text) == 64 and all(c in "0123456789abcdef" for c in text):
        return bytes.fromhex(text)
    path = Path(text)
    if not path.is_file():
        raise ConfigError(f"profile must be a profile's file or its id of 64 hexadecimal digits, "
                          f"not {text!r}")
    content = path.read_bytes()
    if not content.startswith(_PROFILE_MAGIC):
        raise ConfigError(f"profile names {text!r}, which is no profile of `sluice calibrate`")
    return hashlib.sha256(content).digest()
