"""The identity of a model's caches: engines with equal identities share what they store.

All that stores or loads must name a model by these functions, or it looks in another namespace.
Thread-safe: no state. They read from disk, `weights_digest` about 0.4 % of the weights.
"""
from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

MAX_TEXT_BYTES = 256  # of a field of an identity, codec/FORMAT.md

# Weights are sampled, as reading a model of 140 GB whole would hold up the engine's start by
# minutes: files up to a step whole, of longer ones the first bytes of every step and the last of
# the file. Training and merging change all of a matrix, so that no sample stays as it was. Missed
# would be one small tensor changed by hand between two samples: then give the folder another name.
SAMPLE_STEP_BYTES = 1 << 20
SAMPLE_BYTES = 4096

_WEIGHTS = (".safetensors", ".bin", ".gguf")
_SNAPSHOT = re.compile(r"models--(?P<repo>[^/]+)/snapshots/(?P<commit>[0-9a-f]{40})")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


class IdentityError(ValueError):
    """Names the path, what is wrong with it, and what to do."""


def _snapshot(path: Path) -> re.Match[str] | None:
    """Of a folder in the cache of the hub: what its path says; links to one count."""
    resolved = path.resolve()
    return _SNAPSHOT.fullmatch("/".join(resolved.parts[-3:]))


def _is_local(path_or_id: str) -> bool:
    if os.path.exists(path_or_id):
        return True
    if _HUB_ID.fullmatch(path_or_id):
        return False
    raise IdentityError(f"{path_or_id}: there is no such file or folder, and it is no id of the "
                        "hub (ORG/NAME); check the path")


def model_name(path_or_id: str | os.PathLike[str]) -> str:
    """"org/name" for an id or a snapshot of the hub, else the last part of the path."""
    text = os.fspath(path_or_id)
    if not _is_local(text):
        return text
    if match := _snapshot(Path(text)):
        return match["repo"].replace("--", "/")
    return Path(os.path.abspath(text)).name


def local_path(path_or_id: str | os.PathLike[str], hub_revision: str | None = None) -> Path:
    """Where a model lies on this machine; an id of the hub must have been downloaded."""
    text = os.fspath(path_or_id)
    if _is_local(text):
        return Path(text)
    from huggingface_hub import snapshot_download  # only models named by an id need it
    try:
        return Path(snapshot_download(text, revision=hub_revision, local_files_only=True,
                                      allow_patterns="config.json"))
    except (OSError, ValueError) as error:  # what the hub raises if it is not in its cache
        raise IdentityError(f"{text}: not in the cache of the hub on this machine; download it "
                            f"first (hf download {text}), or give a local folder") from error


def _samples(file: BinaryIO, size: int) -> Iterator[bytes]:
    if size <= SAMPLE_STEP_BYTES:
        yield file.read()
        return
    for at in (*range(0, size - SAMPLE_BYTES, SAMPLE_STEP_BYTES), size - SAMPLE_BYTES):
        file.seek(at)
        yield file.read(SAMPLE_BYTES)


def _digest(named: list[tuple[str, Path]], whole: bool) -> str:
    """SHA-256 over names, sizes and (samples of) contents."""
    digest = hashlib.sha256()
    for name, path in named:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(f"{len(name.encode())} {name} {size}\n".encode())
            if whole:
                while piece := file.read(SAMPLE_STEP_BYTES):
                    digest.update(piece)
            else:
                for sample in _samples(file, size):
                    digest.update(sample)
    return digest.hexdigest()


def _weight_files(folder: Path, also: str) -> list[tuple[str, Path]]:
    """The files of weights, and the one of their configuration, by name."""
    found = [path for path in folder.iterdir()
             if (path.suffix in _WEIGHTS or path.name == also) and path.is_file()]
    if not any(path.suffix in _WEIGHTS for path in found):
        raise IdentityError(f"{folder}: has no weights (*{', *'.join(_WEIGHTS)}); name the folder "
                            "that holds them")
    return sorted((path.name, path) for path in found)


def weights_digest(path_or_id: str | os.PathLike[str], hub_revision: str | None = None) -> str:
    """The commit of a snapshot of the hub; else SHA-256 of samples of the weights, hexadecimal."""
    path = local_path(path_or_id, hub_revision)
    if match := _snapshot(path):
        return match["commit"]
    return _digest(_weight_files(path, "config.json") if path.is_dir() else [(path.name, path)],
                   whole=False)


def adapter_digest(lora_path: str | os.PathLike[str]) -> str:
    """SHA-256 of an adapter's weights and configuration, hexadecimal; all of them are read."""
    folder = Path(lora_path)
    if not folder.is_dir():
        raise IdentityError(f"{os.fspath(lora_path)}: the adapter is no local folder; download it "
                            "and name its folder, as the cache depends on its weights")
    return _digest(_weight_files(folder, "adapter_config.json"), whole=True)


def quantization_of(hf_config: Any) -> str | None:
    """How the weights are quantised, of a model's transformers config; None if they are not."""
    said = getattr(hf_config, "quantization_config", None)
    if said is None:
        return None
    method = (said if isinstance(said, Mapping) else said.to_dict()).get("quant_method")
    return None if method is None else str(getattr(method, "value", method))


def revision(path_or_id: str | os.PathLike[str], dtype: object, quantization: str | None = None,
             hub_revision: str | None = None) -> str:
    """"<digest>/<dtype>[/<quantization>]": weights that compute alike.

    `quantization`: by the name that the model's config or vLLM has for it; vLLM's names for one
    kind of weights and several kernels ("gptq", "auto_gptq", "gptq_marlin") count as one.
    """
    parts = [weights_digest(path_or_id, hub_revision), str(dtype).removeprefix("torch.")]
    if quantization:
        parts.append(quantization.removeprefix("auto_").removesuffix("_marlin"))
    text = "/".join(parts)
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise IdentityError(f"revision \"{text}\" has more than {MAX_TEXT_BYTES} bytes")
    return text
