"""``memdoctor explain`` as users meet it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from memdoctor.rules import RULES


def test_a_rule_is_explained_without_torch(run: Any, no_torch: dict[str, str]) -> None:
    done = run("explain", "md201", **no_torch)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("MD201 ")
    assert 'attn_implementation="sdpa" (safe)' in done.stdout


def test_without_an_id_every_rule_is_listed(run: Any) -> None:
    shown = run("explain").stdout
    assert [rule.id for rule in RULES if rule.title not in shown] == []


@pytest.mark.parametrize("arguments", [("MD201",), ()])
def test_as_json_it_is_valid_against_its_schema(run: Any, arguments: tuple[str, ...]) -> None:
    document = json.loads(run("explain", *arguments, "--json").stdout)
    assert document["kind"] == "explanation"
    assert [page["id"] for page in document["rules"]] == list(arguments or [rule.id for rule in RULES])
    schema = json.loads(run("schema", "explanation").stdout)
    jsonschema.validate(document, schema, jsonschema.Draft202012Validator)


def test_an_unknown_id_is_one_clear_error(run: Any) -> None:
    done = run("explain", "MD2O1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: there is no rule 'MD2O1'\n")
    assert "memdoctor explain MD201" in done.stderr


@pytest.mark.parametrize("option", ["--message", "--log", "--snapshot"])
def test_messages_and_snapshots_come_later(run: Any, option: str) -> None:
    done = run("explain", option, "x")
    assert done.returncode == 2
    assert done.stderr == f"Error: {option} comes in a later version of memdoctor.\n"
