"""Scratch memory: what is held when."""

from __future__ import annotations

from memdoctor.probes.scratch import Piece, Scratch


def test_nothing_holds_nothing() -> None:
    assert Scratch().peak == 0


def test_what_passes_is_gone_in_the_next_stage() -> None:
    first = (Piece("kept", 10), Piece("passing", 100, stays=False))
    assert Scratch(before=(first,), after=((Piece("last", 50),),)).peak == 110
    assert Scratch(before=(first,), after=((Piece("last", 150),),)).peak == 160
