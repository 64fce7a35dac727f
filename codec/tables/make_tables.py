#!/usr/bin/env python3
"""Writes codec/builtin_tables.inc: symbol tables and centroids of the built-in profile's rows.

  make_tables.py > codec/builtin_tables.inc

A class is a shape and a scale. Shapes are even mixtures of Gauss and Laplace densities; the scale
is the standard deviation in steps of the level that the class codes. The numbers are committed, so
that every machine has the same ones; this script says where they come from.
"""
import math

TOTAL = 4096  # 12-bit probabilities
BASE_SYMBOLS = 16  # -7 .. 7, then escape
CONTEXTS = 7  # parent clipped to -3 .. 3
SHAPES = (0.15, 0.7)  # share of Laplace
SCALES_PER_OCTAVE = 2
BASE_SCALES = [2.0 ** (i / SCALES_PER_OCTAVE) for i in range(-7, 5)]
CLASS_WAKE = 5  # usual class of a row whose parents are all zero
REFINEMENT_SCALES = [2.0 ** (i / SCALES_PER_OCTAVE) for i in range(-7, 9)]


def tail(x, sigma, laplace):
    """P(X > x), x >= 0."""
    gauss = 0.5 * math.erfc(x / sigma / math.sqrt(2))
    return (1 - laplace) * gauss + laplace * 0.5 * math.exp(-math.sqrt(2) * x / sigma)


def mass(lo, hi, sigma, laplace):
    if lo < 0 and hi > 0:
        return 1 - tail(-lo, sigma, laplace) - tail(hi, sigma, laplace)
    lo, hi = (lo, hi) if lo >= 0 else (-hi, -lo)
    return tail(lo, sigma, laplace) - tail(hi, sigma, laplace)


def integers(weights):
    """Frequencies of at least 1 that sum to TOTAL, by largest remainder."""
    spare, total = TOTAL - len(weights), sum(weights)
    exact = [w / total * spare for w in weights]
    out = [1 + int(e) for e in exact]
    for i in sorted(range(len(out)), key=lambda i: int(exact[i]) - exact[i])[: TOTAL - sum(out)]:
        out[i] += 1
    return out


def base_table(sigma, laplace):
    weights = [mass(q - 0.5, q + 0.5, sigma, laplace) for q in range(-7, 8)]
    return integers(weights + [2 * tail(7.5, sigma, laplace)])


def refinement_table(sigma, laplace):
    """Seven contexts of three frequencies; a parent p covers the children 3 p - 1 .. 3 p + 1."""
    contexts = []
    for p in range(-3, 4):
        weights = [0.0, 0.0, 0.0]
        for q in ([p] if abs(p) < 3 else [p + math.copysign(k, p) for k in range(12)]):
            for r in (-1, 0, 1):
                weights[r + 1] += mass(3 * q + r - 0.5, 3 * q + r + 0.5, sigma, laplace)
        if sum(weights) < 1e-9:  # never seen in this class: lean towards zero
            weights = [1.0, 1.0, 1.0]
            weights[1 - int(math.copysign(1, p))] = 3.0
        contexts.append(integers(weights))
    return contexts


def shift(q, sigma, laplace):
    """Distance of the centroid of bin q > 0 from its middle towards zero, in 1/256 steps."""
    n, moment, total = 64, 0.0, 0.0
    for i in range(n):
        x = q - 0.5 + (i + 0.5) / n
        w = mass(x - 0.5 / n, x + 0.5 / n, sigma, laplace)
        moment, total = moment + w * x, total + w
    return 128 if total < 1e-12 else max(0, min(128, round(256 * (q - moment / total))))


def shifts(sigma, laplace):
    """For |q| = 1 and |q| >= 2."""
    weights = [(q, mass(q - 0.5, q + 0.5, sigma, laplace)) for q in range(2, 12)]
    total = sum(w for _, w in weights)
    far = sum(w * shift(q, sigma, laplace) for q, w in weights) / total if total > 1e-12 else 0
    return shift(1, sigma, laplace), min(128, round(far))


def classes(scales):
    """Scale by scale, so that neighbouring classes are similar."""
    return [(sigma, laplace) for sigma in scales for laplace in SHAPES]


def rows(values):
    return ", ".join(str(v) for v in values)


def main():
    base, refinement = classes(BASE_SCALES), classes(REFINEMENT_SCALES)
    print("// Made by codec/tables/make_tables.py.")
    print(f"inline constexpr int kBaseClasses = {len(base)};")
    print(f"inline constexpr int kRefinementClasses = {len(refinement)};")
    # The same scale in steps that are a third as wide.
    growth = len(SHAPES) * round(math.log2(3) * SCALES_PER_OCTAVE)
    print(f"inline constexpr int kClassGrowth = {growth};")
    print(f"inline constexpr int kClassWake = {CLASS_WAKE};")
    print("inline constexpr uint16_t kBaseFrequencies[kBaseClasses][16] = {")
    for c in base:
        print(f"    {{{rows(base_table(*c))}}},")
    print("};\ninline constexpr uint16_t kRefinementFrequencies[kRefinementClasses][7][3] = {")
    for c in refinement:
        print("    {" + ",\n     ".join(f"{{{rows(t)}}}" for t in refinement_table(*c)) + "},")
    print("};\ninline constexpr uint8_t kBaseShifts[kBaseClasses][2] = {")
    for c in base:
        print(f"    {{{rows(shifts(*c))}}},")
    print("};")


if __name__ == "__main__":
    main()
