"""``memdoctor fit``: what fits this card, and which card takes this."""

from __future__ import annotations

from typing import Any

import rich_click as click

from memdoctor.cli.options import DEVICE, OUTPUT, asked, options
from memdoctor.cli.output import check_outputs, next_command, print_json, progress, shown_of, typed, write_all
from memdoctor.cli.workload_options import POSITIVE, WORKLOAD
from memdoctor.records import Fit

USUAL = "usual"


class Lengths(click.ParamType[tuple[int, ...]]):
    """Numbers of tokens, with commas between them."""

    name = "lengths"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers."""
        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in str(value).split(",")]
        if not all(word.isascii() and word.isdigit() and len(word) < 10 and int(word) for word in words):
            self.fail(f"{value!r} is not a list of lengths, such as 128,256,512.", param, ctx)
        return tuple(map(int, words))


LARGEST_AT_ONCE = 4096  # samples: of 512 tokens, BERT-base keeps more than a terabyte for them


@click.command("fit")
@options(WORKLOAD)
@click.option(
    "--effective-batch",
    type=POSITIVE,
    metavar="N",
    panel="What is asked",
    help="Samples in an optimizer step: does that many at once fit, and how else would they?",
)
@click.option(
    "--lengths",
    type=Lengths(),
    metavar="N,N",
    panel="What is asked",
    help="Columns of the table. Without it: 128, 256, 512 as far as the model takes them, and --seq-length.",
)
@click.option(
    "--gpus",
    "cards",
    is_flag=False,
    flag_value=USUAL,
    metavar="[NAMES]",
    panel="What is asked",
    help="Over cards instead, and the smallest for this: T4,A100-40GB or all; with no name a card of every size.",
)
@options(DEVICE, OUTPUT)
def command(effective_batch: int | None, lengths: tuple[int, ...] | None, cards: str | None, **given: Any) -> None:
    """The largest batch for each length and setting, how a wanted batch fits, and the smallest card for this.

    Each number is checked by two direct probes on the simulated card: that batch fits, and one more does not. With
    --effective-batch N, or with --batch-size and --gradient-accumulation-steps (whose product it is), also whether
    that fits, and if not the cheapest changes with which it does.
    """
    from memdoctor import doctor
    from memdoctor.cases import REFERENCE_GPU
    from memdoctor.reports.documents import fit_document
    from memdoctor.reports.fit import print_fit

    _check(effective_batch, lengths, cards, given)
    ask = asked({**given, "top": None})
    check_outputs(ask.outputs, Fit, force=ask.force)
    settings = dict(ask.case)
    plans = cards is None and any(
        said is not None for said in (effective_batch, settings["batch_size"], settings["gradient_accumulation_steps"])
    )
    if effective_batch is not None:
        settings["batch_size"], settings["gradient_accumulation_steps"] = _split(effective_batch)
    if cards is not None:
        settings["gpu"] = REFERENCE_GPU  # any will do: each row is of its own card
    if lengths and settings["seq_length"] is None:
        settings["seq_length"] = max(lengths)
    case = doctor.open_case(**settings)
    with progress(quiet=ask.quiet) as tell:
        found = doctor.fit(
            case, lengths=lengths or (), cards=_names(cards), plans=plans, time_limit=ask.time_limit, progress=tell,
            use_cache=ask.use_cache,
        )  # fmt: skip
    found = shown_of(found, redact=ask.redact)
    document = fit_document(found)
    if ask.as_json:
        print_json(document)
    else:
        print_fit(found)
    write_all(ask.outputs, found, document, force=ask.force)
    if not (ask.as_json or ask.quiet or ask.redact):
        next_command(f"memdoctor report {ask.outputs[0]}" if ask.outputs else f"memdoctor fit {typed()} -o fit.json")


def _split(effective_batch: int) -> tuple[int, int]:
    """The whole at once, or where that is more than anybody has room for, its largest part that is not."""
    sizes = range(min(effective_batch, LARGEST_AT_ONCE), 0, -1)
    batch = next(size for size in sizes if effective_batch % size == 0)
    return batch, effective_batch // batch


def _check(
    effective_batch: int | None, lengths: tuple[int, ...] | None, cards: str | None, given: dict[str, Any]
) -> None:
    """Refuse options that contradict each other."""
    if effective_batch is not None:
        for name in ("batch_size", "gradient_accumulation_steps"):
            if given[name] is not None:
                raise click.UsageError(
                    f"--effective-batch and --{name.replace('_', '-')} contradict each other: "
                    "the effective batch is their product."
                )
    if cards is None:
        return
    others = {"--gpu": given["gpu"], "--memory": given["memory"], "--lengths": lengths}
    others["--effective-batch"] = effective_batch
    for option, value in others.items():
        if value is not None:
            raise click.UsageError(f"--gpus and {option} contradict each other: choose one.")


def _names(cards: str | None) -> tuple[str, ...] | None:
    """Cards by name; none: the usual ones; ``None``: no table over cards."""
    if cards is None or cards == USUAL:
        return None if cards is None else ()
    names = tuple(name.strip() for name in cards.split(","))
    if not all(names):
        raise click.UsageError(f"--gpus {cards}: a name is missing; write them as T4,A100-40GB.")
    return names
