"""The table of one card: the largest batch for each setting and length."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from memdoctor.errors import InputError, MemdoctorError
from memdoctor.fitting.looking import SMALL, Looker, cap_of
from memdoctor.matrix import LENGTHS, apply_to
from memdoctor.measuring import Subject
from memdoctor.planning import mixed_precision
from memdoctor.records import Change, Device, Edge, FitCell, Workload
from memdoctor.scaling import Pair


def lengths_of(target: Workload, longest: int | None, asked: Sequence[int]) -> tuple[int, ...]:
    """The lengths asked for, else the usual ones that the model takes and the target's own; the shortest first.

    Raises:
        InputError: a length that the model does not take.
    """
    for length in asked:
        if longest is not None and length > longest:
            raise InputError(
                f"a sequence of {length} tokens is longer than {target.model} takes",
                why=f"its positions end at {longest}",
                hint=f"lengths up to {longest}, or a model for longer texts",
            )
    usual = [length for length in LENGTHS if longest is None or length <= longest]
    return tuple(sorted({*(asked or (*usual, target.seq_length))}))


def settings_of(target: Workload, device: Device) -> tuple[Change, ...]:
    """The settings as given, with checkpointing, with the card's mixed precision, and with both."""
    cast = mixed_precision(target, device)
    recompute: list[Change] = [{}] if target.gradient_checkpointing else [{}, {"gradient_checkpointing": True}]
    precisions: list[Change] = [{}, {"precision": cast}] if cast else [{}]
    return tuple({**precision, **part} for precision, part in product(precisions, recompute))


def over_lengths(looker: Looker, target: Workload, device: Device, lengths: Sequence[int]) -> tuple[FitCell, ...]:
    """A cell for each setting and length, setting by setting.

    Raises:
        MemdoctorError: not one cell could be probed; this is why.
    """
    places = list(product(settings_of(target, device), lengths))
    subjects = [apply_to(target, device, {**change, "seq_length": length}) for change, length in places]
    pairs: dict[Subject, Pair | None] = {subject: None for subject in subjects if cap_of(subject) < SMALL[-1]}
    rest = [subject for subject in subjects if subject not in pairs]
    results: dict[Subject, Edge | MemdoctorError] = {}
    for subject, pair in zip(rest, looker.pairs(rest), strict=True):
        if isinstance(pair, Pair):
            pairs[subject] = pair
        else:
            results[subject] = pair
    results |= looker.edges(pairs)
    errors = [result for result in results.values() if isinstance(result, MemdoctorError)]
    if len(errors) == len(results):
        raise errors[0]
    return tuple(_cell(*place, results[subject]) for place, subject in zip(places, subjects, strict=True))


def _cell(change: Change, length: int, result: Edge | MemdoctorError) -> FitCell:
    if isinstance(result, MemdoctorError):
        return FitCell(change=change, seq_length=length, edge=None, why_not=result.what)
    return FitCell(change=change, seq_length=length, edge=result)
