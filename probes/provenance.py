"""How an examination was obtained, as every probe says it."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import torch
import transformers

from memdoctor import __version__
from memdoctor.records import Attention, Provenance

_FUSED = "aten._scaled_dot_product_"
# As the simulated probe calls them; others by the operator's own name.
_KERNELS = {"flash_attention": "flash", "efficient_attention": "memory-efficient", "cudnn_attention": "cudnn"}


def provenance_of(
    mode: str,
    model_source: str,
    started: float,
    *,
    attention_kernels: tuple[str, ...],
    notes: Sequence[str],
    cuda: str = "",
    driver: str = "",
) -> Provenance:
    """The releases at hand and the time taken since ``started``, by ``time.perf_counter``."""
    return Provenance(
        mode=mode, memdoctor=__version__, torch=torch.__version__, transformers=transformers.__version__,
        python=platform.python_version(), created=datetime.now(UTC).isoformat(timespec="seconds"),
        model_source=model_source, attention_kernels=attention_kernels,
        seconds=round(time.perf_counter() - started, 3), notes=tuple(filter(None, notes)), cuda=cuda, driver=driver,
    )  # fmt: skip


def kernels_in(operators: Iterable[str], attention: Attention | None) -> tuple[str, ...]:
    """The fused kernels of ``scaled_dot_product_attention`` that ran; where none did, it is the math path or eager."""
    fused = {op.removeprefix(_FUSED).partition(".")[0] for op in operators if op.startswith(_FUSED)}
    forward = sorted(_KERNELS.get(name, name) for name in fused if not name.endswith("backward"))
    return tuple(forward) or (("math",) if attention is Attention.SDPA else ("eager",))
