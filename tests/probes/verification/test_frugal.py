"""What is there is not looked through for garbage, for as long as the loops run."""

from __future__ import annotations

import gc

from memdoctor.probes.verification.frugal import kept_at_hand


def test_what_was_there_is_set_aside_and_given_back() -> None:
    before = gc.get_freeze_count()
    with kept_at_hand():
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0
