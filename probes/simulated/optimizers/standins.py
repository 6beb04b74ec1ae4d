"""Which stand-ins an optimizer needs, and putting them in place for the time of a probe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from memdoctor.probes.optimizers.names import (
    APOLLO,
    BITSANDBYTES,
    GALORE,
    LOMO,
    OPTIMI,
    OPTIMIZERS,
    TORCHAO,
    Library,
    require,
)
from memdoctor.probes.simulated.optimizers import apollo, bitsandbytes, galore, lomo, optimi, torchao
from memdoctor.probes.simulated.optimizers.replacement import Replacement

_STANDINS: dict[Library, Callable[[torch.device], list[Replacement]]] = {
    APOLLO: apollo.standins,
    BITSANDBYTES: bitsandbytes.standins,
    GALORE: galore.standins,
    LOMO: lomo.standins,
    OPTIMI: optimi.standins,
    TORCHAO: torchao.standins,
}


@contextmanager
def standing_in(name: str, device: torch.device) -> Iterator[None]:
    """Within the context the library of the optimizer called ``name`` works on the simulated ``device``.

    Raises:
        InputError: no such optimizer, one that cannot be simulated, or one whose library is absent or too old.
    """
    require(name)
    standins = _STANDINS.get(OPTIMIZERS[name])
    replacements = standins(device) if standins else []
    originals = [item.put() for item in replacements]
    try:
        yield
    finally:
        for item, original in zip(replacements, originals, strict=True):
            item.take_back(original)
