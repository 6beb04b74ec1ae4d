"""One colour for each holder of memory, in every view. Okabe and Ito's palette, told apart with any kind of eyes.

Source: M. Okabe, K. Ito, "Color Universal Design", 2008. The three that PyTorch does not hold are greys, and what is
free has none: it is the background.
"""

from __future__ import annotations

COLOURS = {
    "parameters": "#0072b2",
    "gradients": "#56b4e9",
    "optimizer_state": "#cc79a7",
    "activations": "#e69f00",
    "inputs_and_buffers": "#009e73",
    "autocast_copies": "#f0e442",
    "temporaries": "#d55e00",
    "workspace": "#a6761d",
    "allocator_overhead": "#c4c4c4",
    "context": "#8c8c8c",
    "other_processes": "#595959",
}
"""By the parts of a breakdown, in its order."""

TOO_MUCH = "#b00020"
"""What the card does not have."""


def on(colour: str) -> str:
    """Black or white, whichever is read better on this colour (relative luminance of WCAG 2)."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"
