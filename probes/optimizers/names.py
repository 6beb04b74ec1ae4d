"""Every name of ``transformers.training_args.OptimizerNames``: the library it needs, or why it cannot be simulated."""

from __future__ import annotations

import importlib
from collections import defaultdict
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from packaging.version import Version
from torch.utils._python_dispatch import _disable_current_modes

from memdoctor.catalogue.nearness import near
from memdoctor.errors import InputError


@dataclass(frozen=True, slots=True)
class Library:
    """Who provides an optimizer: the module to import, its distribution, the oldest release that will do."""

    module: str
    distribution: str
    oldest: str
    extra: str


TORCH = Library("torch", "torch", "2.11", "")
TRANSFORMERS = Library("transformers", "transformers", "5", "")
# 0.46: the first release whose kernels are torch operators, for which a simulated GPU can have its own.
BITSANDBYTES = Library("bitsandbytes", "bitsandbytes", "0.46", "bitsandbytes")
TORCHAO = Library("torchao.optim", "torchao", "0.11", "torchao")  # 0.11: since then in torchao.optim
GALORE = Library("galore_torch", "galore-torch", "1.0", "galore")
APOLLO = Library("apollo_torch", "apollo-torch", "1.0.3", "apollo")
LOMO = Library("lomo_optim", "lomo-optim", "0.1.1", "lomo")
SCHEDULE_FREE = Library("schedulefree", "schedulefree", "1.4", "schedulefree")
GROKADAMW = Library("grokadamw", "grokadamw", "0.1.2", "grokadamw")
OPTIMI = Library("optimi", "torch-optimi", "0.3", "optimi")

OPTIMIZERS: dict[str, Library] = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "rmsprop"), TORCH),
    "adafactor": TRANSFORMERS,
    **dict.fromkeys(
        (
            "adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "ademamix", "ademamix_8bit",
            "paged_ademamix_8bit", "paged_ademamix_32bit", "lion_8bit", "lion_32bit", "paged_lion_8bit",
            "paged_lion_32bit", "rmsprop_bnb", "rmsprop_bnb_8bit", "rmsprop_bnb_32bit",
        ),
        BITSANDBYTES,
    ),
    **dict.fromkeys(("adamw_torch_8bit", "adamw_torch_4bit"), TORCHAO),
    **dict.fromkeys(("galore_adamw", "galore_adafactor", "galore_adamw_layerwise"), GALORE),
    **dict.fromkeys(("apollo_adamw", "apollo_adamw_layerwise"), APOLLO),
    **dict.fromkeys(("lomo", "adalomo"), LOMO),
    **dict.fromkeys(("schedule_free_adamw", "schedule_free_radam", "schedule_free_sgd"), SCHEDULE_FREE),
    "grokadamw": GROKADAMW,
    "stable_adamw": OPTIMI,
}  # fmt: skip

_GALORE_8BIT = "galore_torch 1.0 hands bitsandbytes its arguments by position, and recent releases moved them"
NOT_SIMULATED: dict[str, str] = {
    "galore_adamw_8bit": _GALORE_8BIT,
    "galore_adamw_8bit_layerwise": _GALORE_8BIT,
    "galore_adafactor_layerwise": "the Trainer gives it a learning rate and relative steps, which it does not take",
    "adamw_anyprecision": "torchdistx, which has it, is no longer released",
    "adamw_apex_fused": "apex must be built for a GPU, and transformers 5 drops it",
    "adamw_torch_xla": "it runs on XLA devices, not on a CUDA GPU",
    "adamw_torch_npu_fused": "it runs on Ascend devices, not on a CUDA GPU",
}


def updates_in_backward(name: str) -> bool:
    """Whether the optimizer consumes each gradient as soon as it is there, so that no step follows backward."""
    return name in ("lomo", "adalomo") or name.endswith("_layerwise")


def require(name: str) -> None:
    """See to it that the optimizer called ``name`` can be simulated here, and import its library.

    Raises:
        InputError: no such optimizer, one that cannot be simulated, or one whose library is absent or too old.
    """
    if name not in OPTIMIZERS:
        raise _refusal(name)
    library = OPTIMIZERS[name]
    try:
        found = version(library.distribution)
    except PackageNotFoundError:
        found = ""
    if not found or Version(found) < Version(library.oldest):
        wanted = f"{library.distribution}>={library.oldest}"
        raise InputError(
            f"optimizer {name!r} needs {wanted}",
            why=f"release {found} is installed" if found else "it is not installed",
            hint=f"pip install '{wanted}'" + (f", which memdoctor's extra [{library.extra}] asks for"),
        )
    with _disable_current_modes():  # what a library makes when it is imported is real
        importlib.import_module(library.module)


def _refusal(name: str) -> InputError:
    keys: defaultdict[str, list[str]] = defaultdict(list)
    for other in OPTIMIZERS:
        keys[other.replace("_", "")].append(other)
    alike = near("".join(filter(str.isalnum, name.lower())), keys, limit=4)
    why = NOT_SIMULATED.get(name, "the Trainer has no optimizer of this name")
    nearest_first = dict.fromkeys((*alike, *OPTIMIZERS))
    return InputError(
        f"optimizer {name!r} cannot be simulated", why=why, hint=f"--optim with one of: {', '.join(nearest_first)}"
    )
