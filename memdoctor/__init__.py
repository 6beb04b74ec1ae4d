"""memdoctor: find out why BERT fine-tuning runs out of GPU memory.

``memdoctor.diagnose("bert-base-uncased", batch_size=32, gpu="T4")`` is the command as a function, and so are
``examine``, ``fit``, ``compare`` and ``load``; see :mod:`memdoctor.api`. This imports neither torch nor pandas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memdoctor.api import Report, compare, diagnose, examine, fit, load

__version__ = "0.1.0"
__all__ = ["Report", "compare", "diagnose", "examine", "fit", "load"]


def __getattr__(name: str) -> Any:
    """The functions of the interface, imported when the first of them is asked for."""
    if name in __all__:
        from memdoctor import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What there is to complete."""
    return [*__all__, "__version__"]
