"""One plot: bits per element against KL, a line a codec."""
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as pyplot

import report

OUR_COLOURS = ("#0b5fa5", "#4d9ad6", "#9cc8ea")
OTHER_COLOURS = ("#777777", "#b3541e", "#8c6bb1", "#2a8c5b", "#c08a00")
OTHER_MARKERS = "svd^P"


def draw(results, path):
    figure, axes = pyplot.subplots(figsize=(8, 5.2), layout="constrained")
    ours = others = 0
    for name, curve in results["curves"].items():
        if name == report.PROSE_ONLY:
            continue
        if name in results["profiles"]:
            style = {"color": OUR_COLOURS[ours], "marker": "o", "linewidth": 2.5 - 0.5 * ours}
            ours += 1
        else:
            style = {"color": OTHER_COLOURS[others], "marker": OTHER_MARKERS[others],
                     "linewidth": 1, "linestyle": "--"}
            others += 1
        ordered = sorted(curve, key=lambda point: point["bits"])
        axes.plot([point["bits"] for point in ordered], [point["kl"] for point in ordered],
                  label=name, markersize=6, **style)
    axes.set(xlabel="bits per element, all bytes counted",
             ylabel="KL of the next token, nats (lower is better)", xscale="log", yscale="log",
             title=f"{results['model']}, {len(results['judged'])} texts not used to calibrate")
    ticks = (0.25, 0.5, 1, 2, 4, 8)
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    axes.grid(which="major", color="#dddddd", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
