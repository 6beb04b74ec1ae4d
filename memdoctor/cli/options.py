"""Options that several commands share: the same word everywhere, by Hugging Face's names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import rich_click as click

from memdoctor.cli.output import Output, OutputType
from memdoctor.cli.workload_options import OF_EVALUATION, POSITIVE
from memdoctor.records import Attention, Dtype, Loop, Precision, Task

_F = TypeVar("_F", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A range that nan is not in; every comparison with it is false, those of the range too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail("nan is no number.", param, ctx)
        return number


_device = partial(click.option, panel="Card")
_output = partial(click.option, panel="Output")

DEVICE = (
    _device("--gpu", metavar="NAME", help="T4, A100-40GB, RTX3090 ...: see memdoctor gpus."),
    _device("--memory", metavar="SIZE", help='The card has this much instead, e.g. "8 GiB".'),
    _device(
        "--backend", type=click.Choice(["auto", "gpu", "simulated", "cpu"]), default="auto", show_default=True,
        help="Where the step runs.",
    ),
    _device(
        "--cuda-alloc-conf", "alloc_conf", metavar="TEXT",
        help="PYTORCH_CUDA_ALLOC_CONF, e.g. expandable_segments:True.",
    ),
    _device("--offline", is_flag=True, help="Do not ask the model hub."),
    _device(
        "--time-limit", type=Seconds(min=0, min_open=True), default=300.0, show_default=True,
        metavar="SECONDS", help="For one probe.",
    ),
    _device("--no-cache", is_flag=True, help=(
        "Simulate anew what was simulated before. MEMDOCTOR_CACHE in the environment is a directory to keep that in, "
        "or off."
    )),
)  # fmt: skip
# Commands need not know of it: where a bug is told, sys.argv says whether it was given.
VERBOSE = click.option(
    "-v", "--verbose", is_flag=True, expose_value=False, help="Show the traceback of an internal error."
)
OUTPUT = (
    _output(
        "-o", "--output", "outputs", type=OutputType(), multiple=True, metavar="PATH",
        help="Write here too; the suffix decides the format, and a folder gets each figure alone. Repeatable.",
    ),
    _output("--json", "as_json", is_flag=True, help="JSON on standard output, and nothing else there."),
    _output("-f", "--force", is_flag=True, help="Overwrite files."),
    _output("--redact", is_flag=True, help="Without paths, host and user names, and models that are local paths."),
    _output("-q", "--quiet", is_flag=True, help="No progress."),
    VERBOSE,
)  # fmt: skip
AS_JSON = click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")
LISTING = (
    click.argument("pattern", required=False),
    AS_JSON,
    click.option("--sources", is_flag=True, help="Where each entry's facts come from."),
    VERBOSE,
)
TOP = (_output("--top", type=POSITIVE, help="List this many of the largest tensors at the peak."),)

PARTS = (
    _output("--details", is_flag=True, help="Print every finding, lever and patch, and what was not checked."),
    _output("--checklist", is_flag=True, help="Print how the fallback checklist was followed, step by step."),
)
CLAIMS = (_output("--claims", is_flag=True, help="Probe what common beliefs say; print each beside what was found."),)


def options(*groups: tuple[Callable[[Any], Any], ...]) -> Callable[[_F], _F]:
    """Decorate a command with groups of options, in the order given."""

    def decorate(function: _F) -> _F:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return decorate


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of a command that probes: the case to open, and what to do with the result."""

    case: Mapping[str, Any]  # the arguments of doctor.open_case
    time_limit: float
    use_cache: bool
    outputs: tuple[Output, ...]
    as_json: bool
    force: bool
    quiet: bool
    redact: bool
    top: int


def asked(given: dict[str, Any]) -> Asked:
    """From the options of ``WORKLOAD``, :data:`DEVICE`, :data:`OUTPUT` and :data:`TOP`.

    Raises:
        click.UsageError: two options that contradict each other.
    """
    rest = dict(given)
    doing = {name: rest.pop(name) for name in ("time_limit", "outputs", "as_json", "force", "quiet", "redact")}
    top, use_cache = rest.pop("top") or 0, not rest.pop("no_cache")
    case = {name: rest.pop(name) for name in ("model", "gpu", "memory", "backend", "offline", "alloc_conf")}
    return Asked(case={**case, **_settings(rest)}, top=top, use_cache=use_cache, **doing)


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """Fields of a Workload; what was not said is ``None``."""
    settings = {name: value for name, value in given.items() if name not in ("fp16", "bf16")}
    settings["precision"] = _precision(given)
    for name, kind in (("task", Task), ("dtype", Dtype)):
        settings[name] = kind(given[name]) if given[name] else None
    settings["loop"] = _loop(given["loop"])
    if given["evaluate"] is None and any(given[name] is not None for name in OF_EVALUATION):
        settings["evaluate"] = True
    if given["attention"] == "flash_attention_2":
        raise click.UsageError(
            "--attn-implementation flash_attention_2 cannot be simulated: its operators are a package of their own. "
            "sdpa runs flash attention from compute capability 8.0 on in fp16 and bf16, and saves the same tensors."
        )
    settings["attention"] = Attention(given["attention"]) if given["attention"] else None
    for name in ("freeze", "lora_target_modules", "optim_target_modules"):
        settings[name] = tuple(given[name]) or None
    return settings


def _loop(said: str | None) -> Loop | None:
    if said is None or said in tuple(Loop):
        return Loop(said) if said else None
    if ":" in said:
        raise click.UsageError(f"--loop {said}: a loop of your own is run by probe --verify-accumulation alone.")
    raise click.UsageError(f"--loop {said} is neither trainer nor custom, nor your own module:function.")


def _precision(given: dict[str, Any]) -> Precision | None:
    said = {Precision(given["precision"])} if given["precision"] else set()
    said |= {kind for kind in (Precision.FP16, Precision.BF16) if given[kind.value]}
    denied = {kind for kind in (Precision.FP16, Precision.BF16) if given[kind.value] is False}
    for kind in said & denied:
        raise click.UsageError(f"--precision {kind} and --no-{kind} contradict each other: choose one.")
    if len(said) > 1:
        names = ["--precision fp32" if kind is Precision.FP32 else f"--{kind}" for kind in sorted(said)]
        raise click.UsageError(f"{' and '.join(names)} contradict each other: choose one.")
    if said:
        return said.pop()
    return Precision.FP32 if False in (given["fp16"], given["bf16"]) else None
