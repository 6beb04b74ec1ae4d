"""The second step of a probe stands for all later ones: what an optimizer does only now and then is done in it."""

from __future__ import annotations

import torch

# RAdamScheduleFree takes the denominators that need memory once rho_t > 4 (radam_schedulefree.py), which is from its
# fifth step on: counting from three, the first step of a probe has none of them, and the second has.
_RADAM_STEPS_DONE = 3


def bring_forward(optimizer: torch.optim.Optimizer) -> None:
    """Make the second step like the largest of the later ones; the first step stays what it is.

    GaLore and APOLLO take new projections every ``update_proj_gap`` steps, with the old ones and all state in place.
    """
    for part in (getattr(optimizer, "optimizer_dict", None) or {}).values():  # a layer-wise optimizer's
        bring_forward(part)
    for group in optimizer.param_groups:
        if "update_proj_gap" in group:
            group["update_proj_gap"] = 1
        if type(optimizer).__name__ == "RAdamScheduleFree":
            group["k"] = _RADAM_STEPS_DONE
