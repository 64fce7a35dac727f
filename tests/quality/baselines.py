"""Other codecs, to compare with: simulated, at sizes that flatter them.

Entropies of an ideal coder per channel stand for coded bytes, and tables cost nothing. A method
takes (model layer, number of model layers, 0 for K or 1 for V, plane [heads, tokens, dim]) and
returns (decoded plane, bits).
"""
import functools

import torch


def entropy_bits(symbols):
    """Bits of integer symbols [tokens, channels] with an ideal coder per channel."""
    symbols = (symbols - symbols.amin(0)).long()
    width = int(symbols.max()) + 1
    offsets = width * torch.arange(symbols.shape[1])
    counts = torch.bincount((symbols + offsets).flatten(), minlength=width * symbols.shape[1])
    counts = counts[counts > 0].double()
    return symbols.numel() * torch.tensor(len(symbols)).log2().item() - \
        (counts * counts.log2()).sum().item()


def by_token(plane):
    """[heads, tokens, dim] -> [tokens, heads * dim], and the way back."""
    heads, tokens, dim = plane.shape
    return plane.float().transpose(0, 1).reshape(tokens, heads * dim), \
        lambda flat: flat.reshape(tokens, heads, dim).transpose(0, 1)


def scaled(flat, most):
    """Symbols -most..most of each row, and the rows' scales."""
    scale = flat.abs().amax(1, keepdim=True).clamp_min(1e-8) / most
    return (flat / scale).round(), scale


def cachegen_code(key_bins, value_bins, layer, layers, kind, plane):
    """As CacheGen's published code: a 16-bit scale a token, fewer bins in later model layers:
    those of K change after 10 and 20 of 32 layers, those of V after 2.
    """
    if kind == 0:
        bins = key_bins[min(2, 32 * layer // (10 * layers))]
    else:
        bins = value_bins[0 if layer < 2 else 1]
    flat, back = by_token(plane)
    symbols, scale = scaled(flat, bins // 2 - 1)
    return back(symbols * scale), entropy_bits(symbols) + 16 * len(flat)


def cachegen_paper(width, layer, layers, kind, plane, every=10):
    """As CacheGen's paper: in every 10 tokens an 8-bit anchor, and quantised differences to it,
    with steps of 0.5, 1 or 1.5 widths (standard deviations of a channel) by third of the layers.
    """
    flat, back = by_token(plane)
    first = torch.arange(len(flat)) // every * every
    is_anchor = first == torch.arange(len(flat))
    anchor_symbols, anchor_scale = scaled(flat[is_anchor], 127)
    anchors = (anchor_symbols * anchor_scale)[first // every]
    difference = flat - anchors
    step = width * (0.5, 1.0, 1.5)[3 * layer // layers] * \
        difference[~is_anchor].std(0, keepdim=True)
    symbols = (difference / step).round()
    decoded = torch.where(is_anchor.unsqueeze(1), anchors, anchors + symbols * step)
    return back(decoded), entropy_bits(anchor_symbols) + entropy_bits(symbols[~is_anchor])


def groups(bits, layer, layers, kind, plane, group=64):
    """Uniform integers with a 16-bit scale and zero a group of 64: K along tokens, V along dims."""
    x = plane.float().transpose(1, 2) if kind == 0 else plane.float()
    grouped = x.unflatten(-1, (-1, group))
    low, high = grouped.amin(-1, keepdim=True), grouped.amax(-1, keepdim=True)
    step = ((high - low) / (2 ** bits - 1)).clamp_min(1e-8)
    decoded = (((grouped - low) / step).round() * step + low).flatten(-2)
    return decoded.transpose(1, 2) if kind == 0 else decoded, plane.numel() * (bits + 32 / group)


def eight_bits(layer, layers, kind, plane):
    """8-bit integers with a 16-bit scale for all heads of a token."""
    flat, back = by_token(plane)
    symbols, scale = scaled(flat, 127)
    return back(symbols * scale), 8 * plane.numel() + 16 * len(flat)


# Family -> {setting: method}. A family is one line of the plot.
BASELINES = {
    "8 bits per token": {"": eight_bits},
    "4-bit groups of 64": {"": functools.partial(groups, 4)},
    "3-bit groups of 64": {"": functools.partial(groups, 3)},
    "CacheGen, paper": {f"widths x {width}": functools.partial(cachegen_paper, width)
                        for width in (0.25, 0.5, 1.0)},
    "CacheGen, code": {
        f"{'/'.join(map(str, keys))}, {'/'.join(map(str, values))} bins":
            functools.partial(cachegen_code, keys, values)
        for keys, values in (((32, 16, 16), (32, 16)), ((16, 16, 12), (16, 12)),
                             ((12, 12, 12), (12, 12)))},
}


def apply(method, planes):
    """(decoded planes, bits) of a cache [(K, V)] by model layer."""
    coded = [[method(layer, len(planes), kind, plane) for kind, plane in enumerate(pair)]
             for layer, pair in enumerate(planes)]
    return [tuple(decoded for decoded, _ in pair) for pair in coded], \
        sum(bits for pair in coded for _, bits in pair)
