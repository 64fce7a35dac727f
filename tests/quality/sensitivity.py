#!/usr/bin/env python3
"""How much an error in each plane of a cache costs the model, for `sluice calibrate --sensitivity`.

  sensitivity.py --caches FOLDER --out FILE.json

The table is {"kl_per_variance": [[K, V] of each model layer]}: the KL, in nats and mean per token
of the tail, that independent noise of variance 1 on every element of the plane would cause if it
grew as it does for small noise, a mean over the contexts of FOLDER. KL is then error^T F error / 2,
where F, the Fisher information, is the second moment of the gradients of the log-probabilities of
tokens drawn from the model's own predictions. So one backward pass tells of all planes at once.
"""
import argparse
import json
import pathlib

import torch

from contexts import contexts_in
from model import Model, SINK_TOKENS
from progress import progress

DRAWS = 2  # samples of the tail a context


def plane_gradients(model, context, generator):
    """Yields for each draw the gradients of the tail's log-probability, [(K, V)] by layer."""
    planes = [[plane.float().requires_grad_() for plane in pair] for pair in context.planes()]
    tail, _ = context.tail()
    predicted = model.predict(planes, tail)
    for draw in range(DRAWS):
        tokens = torch.multinomial(predicted.detach().exp(), 1, generator=generator)
        gradients = iter(torch.autograd.grad(
            predicted.gather(1, tokens).sum(), [plane for pair in planes for plane in pair],
            retain_graph=draw < DRAWS - 1))
        yield list(zip(gradients, gradients))


def sensitivity(model, contexts):
    """KL per variance, [[K, V] by model layer]."""
    generator = torch.Generator().manual_seed(1)
    total, draws = 0, 0
    for context in progress("sensitivity", contexts):
        tail, _ = context.tail()
        for gradients in plane_gradients(model, context, generator):
            squares = [[plane[:, SINK_TOKENS:].square().sum() for plane in pair]
                       for pair in gradients]
            total, draws = total + torch.tensor(squares) / (2 * len(tail)), draws + 1
    return (total / draws).tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--caches", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    args = parser.parse_args()
    table = sensitivity(Model(), contexts_in(args.caches))
    args.out.write_text(json.dumps({"kl_per_variance": table}) + "\n")


if __name__ == "__main__":
    main()
