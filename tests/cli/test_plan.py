"""The first entry of a plan, typed as it is printed, fits and takes what was promised."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

CONFIG = {
    "model_type": "bert", "vocab_size": 2000, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 256, "max_position_embeddings": 512,
}  # fmt: skip
TOO_MUCH = ("-b", 64, "-s", 512, "--gpu", "T4", "--memory", "300 MiB")


@pytest.fixture(scope="module")
def planned(run: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The diagnosis of a batch that does not fit, and where its model is."""
    here = tmp_path_factory.mktemp("planned")
    (here / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    done = run("diagnose", "--model", here / "config.json", *TOO_MUCH, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["verdict"]["fits"] is False
    assert document["plan"][0]["fits"]
    return document, here


def test_the_command_of_the_first_entry_fits_as_promised(planned: Any, run: Any) -> None:
    document, _ = planned
    entry = document["plan"][0]
    program, *words = shlex.split(entry["patch"]["cli"])
    assert program == "memdoctor"
    applied = json.loads(run(*words, "--json").stdout)
    assert applied["verdict"]["fits"] is True
    assert applied["peak"]["reserved_bytes"] == entry["peak"]["reserved_bytes"]


def test_its_change_typed_key_by_key_fits_as_promised(planned: Any, run: Any) -> None:
    document, here = planned
    entry = document["plan"][0]
    change = {"batch_size": 64, "seq_length": 512, **entry["change"]}
    words = []
    for key, value in change.items():
        words += [f"--{key.replace('_', '-')}", *([] if value is True else [str(value)])]
    applied = json.loads(run("probe", "-m", here / "config.json", *TOO_MUCH[4:], *words, "--json").stdout)
    assert applied["outcome"]["kind"] == "completed"
    assert applied["peak"]["reserved_bytes"] == entry["peak"]["reserved_bytes"]
