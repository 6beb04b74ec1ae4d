"""Long names are told by both of their ends."""

from __future__ import annotations

import pytest

from memdoctor.names import cut


@pytest.mark.parametrize("longest", [9, 10, 80])
def test_a_long_name_loses_its_middle(longest: int) -> None:
    name = "a" * 50 + "b" * 50
    assert len(cut(name, longest)) == longest
    assert cut(name, longest).strip("a").strip("b") == "..."


def test_a_short_name_is_whole() -> None:
    assert cut("abc", 3) == "abc"
