"""Scratch memory: what one operator's kernel allocates for itself and frees before it returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """One allocation of a kernel: its name in the kernel's source and its bytes.

    ``stays`` until the operator ends; otherwise it is freed when the stage that it belongs to is over.
    """

    name: str
    bytes: int
    stays: bool = True


Stage = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Scratch:
    """Everything one operator takes, in the order of its source: stages before its outputs exist, and after."""

    before: tuple[Stage, ...] = ()
    after: tuple[Stage, ...] = ()

    @property
    def peak(self) -> int:
        """The most bytes at one time, without the outputs."""
        held = most = 0
        for stage in (*self.before, *self.after):
            most = max(most, held + sum(piece.bytes for piece in stage))
            held += sum(piece.bytes for piece in stage if piece.stays)
        return most
