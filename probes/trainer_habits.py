"""What the Trainer does otherwise from one release of transformers to the next, read in the wheels of 5.0 to 5.24."""

from __future__ import annotations

import transformers

_INSTALLED = tuple(int(part) for part in transformers.__version__.split(".")[:2])

TAKES_NORM_WITHOUT_CLIPPING = _INSTALLED >= (5, 3)
"""``Trainer._get_grad_norm``: with ``max_grad_norm=0`` the norm of the gradients is taken for the log."""

DIVIDES_LABEL_COUNT = _INSTALLED >= (5, 19)
"""``Trainer._get_num_items_in_batch`` divides by the number of devices that share a batch: fp32 from then on."""
