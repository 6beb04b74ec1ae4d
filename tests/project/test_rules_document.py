"""docs/rules.md is what the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_document_is_written_anew_after_each_change() -> None:
    """``python docs/update_rules.py`` does it."""
    spec = importlib.util.spec_from_file_location("update_rules", ROOT / "docs" / "update_rules.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.DOCUMENT.read_text(encoding="utf-8") == module.text()
