#!/usr/bin/python3
"""Draws docs/tiers.png: the forwarding rates of the first table of docs/performance.md, as bars.

Needs Debian's python3-matplotlib. Run from anywhere: contrib/pictures/tiers.py
"""

import pathlib
import re

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot

REPOSITORY = pathlib.Path(__file__).parents[2]
# Rows of the table, from the slowest, with their colours (Okabe and Ito's, which colour-blind readers can tell apart).
ROWS = {
    "kernel": ("#999999", "Linux kernel"),
    "XDP program with `bpf_fib_lookup`": ("#56b4e9", "XDP program with bpf_fib_lookup"),
    "`ingress`": ("#e69f00", "manylane, ingress (tcx)"),
    "`driver`": ("#009e73", "manylane, driver (XDP)"),
}
COLUMNS = {1: "IPv4, a few routes,\n1 flow", 3: "IPv4, the full table,\n65,536 flows", 4: "IPv6, the full table,\n65,536 flows"}


def rates():
    """The medians of the table, by row and column."""
    lines = (REPOSITORY / "docs/performance.md").read_text().splitlines()
    found = {}
    for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")):
        if cells[0] in ROWS and cells[0] not in found:
            found[cells[0]] = {at: re.match(r"[\d.]+", cells[at]) for at in COLUMNS}
    missing = ROWS.keys() - found.keys()
    assert not missing, f"docs/performance.md has no row {missing}"
    return found


def draw():
    pyplot.rcParams.update({"font.family": "DejaVu Sans", "font.size": 10})
    figure, axes = pyplot.subplots(figsize=(8.4, 3.9), dpi=120)
    width = 0.8 / len(ROWS)
    for place, (row, medians) in enumerate((row, rates()[row]) for row in ROWS):
        colour, label = ROWS[row]
        for group, at in enumerate(COLUMNS):
            x = group + (place - (len(ROWS) - 1) / 2) * width
            if not medians[at]:
                axes.text(x, 0.1, "not measured", rotation=90, ha="center", va="bottom", color=colour)
                continue
            value = float(medians[at].group())
            axes.bar(x, value, width * 0.92, color=colour, label=label if group == 0 else None)
            axes.annotate(f"{value:.3g}", (x, value), xytext=(0, 2), textcoords="offset points", ha="center")
    axes.set_xticks(range(len(COLUMNS)), COLUMNS.values())
    axes.set_ylabel("packets forwarded, kernel = 1")
    axes.set_title("64-byte packets through a Linux router on veth, one core", fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    figure.tight_layout()
    figure.savefig(REPOSITORY / "docs/tiers.png", metadata={"Software": None})


if __name__ == "__main__":
    draw()
