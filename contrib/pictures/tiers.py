#!/usr/bin/python3
"""Draws docs/tiers.png: the forwarding rates of testdata/performance.jsonl over the kernel's, as bars.

Needs Debian's python3-matplotlib. Run from anywhere: contrib/pictures/tiers.py
"""

import json
import pathlib

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot

REPOSITORY = pathlib.Path(__file__).parents[2]
# Forwarders, from the slowest, with their colours (Okabe and Ito's, which colour-blind readers can tell apart).
FORWARDERS = {
    "kernel": ("#999999", "Linux kernel"),
    "xdp_fib": ("#56b4e9", "XDP program with bpf_fib_lookup"),
    "ingress": ("#e69f00", "manylane, ingress (tcx)"),
    "driver": ("#009e73", "manylane, driver (XDP)"),
}
# Ends of the figures' names.
GROUPS = {
    "": "IPv4, a few routes,\n1 flow",
    "_v6": "IPv6, a few routes,\n1 flow",
    "_full": "IPv4, the full table,\n65,536 flows",
    "_full_v6": "IPv6, the full table,\n65,536 flows",
}


def ratios():
    """The medians, by the names of the figures."""
    lines = (REPOSITORY / "testdata/performance.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return {row["figure"]: row["value"] for row in rows if row.get("bench") == "veth" and "value" in row}


def draw():
    pyplot.rcParams.update({"font.family": "DejaVu Sans", "font.size": 10})
    figure, axes = pyplot.subplots(figsize=(8.4, 3.9), dpi=120)
    width = 0.8 / len(FORWARDERS)
    medians = ratios()
    for place, (forwarder, (colour, label)) in enumerate(FORWARDERS.items()):
        for group, end in enumerate(GROUPS):
            x = group + (place - (len(FORWARDERS) - 1) / 2) * width
            value = 1 if forwarder == "kernel" else medians.get(f"{forwarder}_over_kernel{end}")
            if value is None:
                axes.text(x, 0.1, "not measured", rotation=90, ha="center", va="bottom", color=colour, fontsize=8)
                continue
            axes.bar(x, value, width * 0.92, color=colour, label=label if group == 0 else None)
            axes.annotate(f"{value:.3g}", (x, value), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=9)
    axes.set_xticks(range(len(GROUPS)), GROUPS.values())
    axes.set_ylabel("packets forwarded, kernel = 1")
    axes.set_title("64-byte packets through a Linux router on veth, one core", fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    figure.tight_layout()
    figure.savefig(REPOSITORY / "docs/tiers.png", metadata={"Software": None})


if __name__ == "__main__":
    draw()
