"""MD206: the hidden states of all layers are handed out."""

from __future__ import annotations

from memdoctor.records import Finding, Loop
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import MODEL_CONFIG, where
from memdoctor.rules.reading import presses
from memdoctor.rules.rule import Remedy, Rule
from memdoctor.units import format_bytes

_LAYERS = ("num_hidden_layers", "n_layers", "num_layers", "encoder_layers")
_WIDTHS = ("hidden_size", "d_model", "dim")


def check(evidence: Evidence) -> Finding | None:
    """``output_hidden_states`` is on: what they hold, and whether anything keeps them."""
    workload = evidence.workload
    if not workload.output_hidden_states:
        return None
    layers, width = _first(evidence, _LAYERS), _first(evidence, _WIDTHS)
    element = 4 if workload.dtype.value == "float32" else 2
    samples, length = workload.batch_size, workload.seq_length
    held = (layers + 1) * samples * length * width * element
    keeps = workload.loop is Loop.CUSTOM
    then = (
        "the loop keeps the outputs, and with them these, until the next step's take their place"
        if keeps
        else "backward needs most of them anyway, and the Trainer drops the outputs before it"
    )
    return RULE.finding(
        "warning" if keeps and presses(evidence) else "info",
        f"{layers + 1} hidden states x {samples}x{length}x{width} x {element} B = {format_bytes(held)} a batch; {then}",
        {"hidden_states_bytes": held},
        at_stake_bytes=held if keeps else 0,
    )


def _first(evidence: Evidence, names: tuple[str, ...]) -> int:
    return next((int(evidence.config[name]) for name in names if name in evidence.config), 0)


RULE = Rule(
    id="MD206",
    title="Hidden states of all layers are handed out",
    why=(
        "With output_hidden_states the model's outputs hold one tensor a layer. In training most of them are kept "
        "for backward in any case; but whoever keeps the outputs keeps them all, and longer."
    ),
    needs=(where(lambda evidence: evidence.workload.output_hidden_states, MODEL_CONFIG),),
    remedies=(
        Remedy("output_hidden_states=False, with what is needed returned by the model itself", "none"),
        Remedy("del outputs before backward, with the loss kept", "none"),
    ),
    check=check,
)
