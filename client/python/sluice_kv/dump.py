"""sluice-dump: runs a model over texts and writes their KV caches, for `sluice calibrate`."""
from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported when the arguments are known to be good: torch takes seconds
    from sluice_kv.cache_file import Planes
    from sluice_kv.geometry import Geometry

OK, FAILURE, USAGE = 0, 1, 2  # as the exit codes of sluice
DEFAULT_TOKENS = 4096

_EXAMPLES = """Examples:
  sluice-dump HuggingFaceTB/SmolLM2-135M-Instruct texts/*.txt --out caches
  sluice-dump /models/llama-3.1-8b texts/*.txt --out caches --tokens 16384 --limit 20
  sluice calibrate --out model.profile caches/*.safetensors
TEXT becomes DIR/TEXT.safetensors, with the first tokens of the text (UTF-8), keys after the rotary
embedding. Some twenty texts like those that will be served make a good profile. The model's name
and revision are those by which the connector for vLLM stores, so that `sluice put` of a cache is
found by the engine if it computes in the same dtype.
Exit codes: 0 ok, 1 failure, 2 bad usage or input."""


class InputError(ValueError):
    """Names the argument or file, what is wrong with it, and what to do."""


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it is {text}; it must be a whole number above 0")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    made = argparse.ArgumentParser(
        prog="sluice-dump", description="Write the KV caches of a model over texts.",
        epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("model", metavar="MODEL", help="local folder, or id of the hub")
    made.add_argument("texts", metavar="TEXT", nargs="+", type=Path, help="text files")
    made.add_argument("-o", "--out", metavar="DIR", type=Path, required=True,
                      help="folder to write to; made if it is not there")
    made.add_argument("--tokens", metavar="N", type=_whole,
                      help=f"tokens of a text at most (default: {DEFAULT_TOKENS}, or as many as "
                      "the model takes)")
    made.add_argument("--limit", metavar="N", type=_whole, help="texts at most (default: all)")
    made.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16",
                      help="of the model and the caches (default: bfloat16)")
    made.add_argument("--device", help="of torch (default: cuda if there is one, else cpu)")
    made.add_argument("--revision", help="branch, tag or commit of a model of the hub")
    return made


def progress(items: Sequence[Path]) -> Iterator[Path]:
    """Yields the items; says on a terminal, and nowhere else, how many are done."""
    shown = sys.stderr.isatty()
    for done, item in enumerate(items):
        if shown:
            print(f"\r\033[K{done}/{len(items)} {item}", end="", file=sys.stderr, flush=True)
        yield item
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def outputs(texts: Sequence[Path], folder: Path) -> dict[Path, Path]:
    """The file to write for each text."""
    made: dict[Path, Path] = {}
    for text in texts:
        out = folder / f"{text.stem}.safetensors"
        twin = next((other for other, path in made.items() if path == out), None)
        if twin is not None:
            raise InputError(f"{text}: becomes {out}, as {twin} does; rename one of them")
        if not text.is_file():
            raise InputError(f"{text}: there is no such file")
        made[text] = out
    return made


class Dumper:
    """A model that is ready to read texts. One thread at a time."""

    def __init__(self, model: str, dtype: str, device: str | None = None,
                 hub_revision: str | None = None) -> None:
        import torch
        import transformers

        from sluice_kv import geometry, identity
        transformers.utils.logging.set_verbosity_error()
        if not sys.stderr.isatty():
            transformers.utils.logging.disable_progress_bar()
        self.model = identity.model_name(model)
        try:
            config = transformers.AutoConfig.from_pretrained(model, revision=hub_revision)
            self.geometry: Geometry = geometry.geometry_of(config, dtype)
            self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
                model, revision=hub_revision)
            self.network: Any = transformers.AutoModelForCausalLM.from_pretrained(
                model, revision=hub_revision, dtype=getattr(torch, dtype))
        except geometry.UnsupportedModel as error:
            raise InputError(f"{model}: {error}") from error
        except (OSError, ValueError, ImportError) as error:
            raise InputError(f"{model}: cannot be loaded: {error}") from error
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.network = self.network.eval().requires_grad_(False).to(self.device)
        text_config = config.get_text_config()
        self.max_tokens = int(text_config.max_position_embeddings)
        self.revision = identity.revision(model, dtype, identity.quantization_of(config),
                                          hub_revision)

    def token_ids(self, path: Path, max_tokens: int) -> list[int]:
        """The first tokens of a text."""
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: is not UTF-8 (byte {error.start}); convert it") from error
        ids: list[int] = self.tokenizer(text, verbose=False).input_ids[:max_tokens]
        if not ids:
            raise InputError(f"{path}: has no text")
        return ids

    def read(self, token_ids: Sequence[int]) -> Planes:
        """The cache of a context."""
        import torch
        import transformers

        from sluice_kv.dynamic_cache import planes_of
        # Made without the model's config, it keeps the tokens behind a sliding window too.
        cache = transformers.DynamicCache()
        with torch.inference_mode():
            self.network.base_model(input_ids=torch.tensor([token_ids], device=self.device),
                                    past_key_values=cache, use_cache=True)
        return [(key.cpu(), value.cpu()) for key, value in planes_of(cache)]


def dump(options: argparse.Namespace) -> None:
    """Writes a cache for each text."""
    from sluice_kv.cache_file import write_planes
    if options.out.resolve() == Path(options.model).resolve():
        raise InputError(f"--out: {options.out} is the model's folder, whose files give its "
                         "revision; name another one")
    files = outputs(options.texts[:options.limit], options.out)
    dumper = Dumper(options.model, options.dtype, options.device, options.revision)
    if (options.tokens or 0) > dumper.max_tokens:
        raise InputError(f"--tokens: it is {options.tokens}; the model takes {dumper.max_tokens} "
                         "at most")
    max_tokens = options.tokens or min(DEFAULT_TOKENS, dumper.max_tokens)
    options.out.mkdir(parents=True, exist_ok=True)
    for text in progress(list(files)):
        token_ids = dumper.token_ids(text, max_tokens)
        write_planes(files[text], dumper.read(token_ids), dumper.geometry, token_ids, dumper.model,
                     dumper.revision)
        with contextlib.suppress(BrokenPipeError):
            print(f"{files[text]}: {len(token_ids)} tokens, "
                  f"{os.path.getsize(files[text]) / 1e6:.1f} MB", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = parser().parse_args(arguments)
    try:
        dump(options)
        return OK
    except ValueError as error:  # InputError, IdentityError, CacheFileError
        problem: Exception = error
        code = USAGE
    except (OSError, RuntimeError) as failure:  # the disk is full; out of memory
        problem, code = failure, FAILURE
    except ModuleNotFoundError as missing:
        problem = RuntimeError(f"there is no module {missing.name}; install the package with it: "
                               "pip install './client/python[transformers]'")
        code = FAILURE
    print(f"sluice-dump: error: {problem}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
