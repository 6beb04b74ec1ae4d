"""The catalogue, the environment and the schema on the command line."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

import memdoctor
from memdoctor.catalogue import gpus

ESCAPE = "\x1b"


def test_models_are_listed_and_filtered(run: Any) -> None:
    everything, some = run("models").stdout, run("models", "XLM").stdout
    assert "bert-base-uncased" in everything
    assert "109,482,240" in everything
    assert "xlm-roberta-base" in some
    assert "bert-base-uncased" not in some


def test_gpus_are_listed_and_filtered(run: Any) -> None:
    everything, some = run("gpus").stdout, run("gpus", "t4").stdout
    assert len(everything.splitlines()) > len(some.splitlines()) > 1
    assert re.search(r"^T4 +14.57 GiB +7.5 +133 ± 45 +8.1 +65.0 +- +320$", some, re.MULTILINE)


def test_a_gpu_takes_one_line_of_80_columns(run: Any) -> None:
    lines = run("gpus", COLUMNS="80").stdout.splitlines()
    assert len(lines) == len(gpus()) + 2  # of two lines of head
    assert re.search(
        r"^RTX4070Ti-SUPER +15.69 GiB +8.9 +240 ± 120 +44.1 +88.2 +88.2 +672$", "\n".join(lines), re.MULTILINE
    )


@pytest.mark.parametrize("command", ["models", "gpus"])
def test_sources_can_be_asked_for(run: Any, command: str) -> None:
    first = json.loads(run(command, "--json").stdout)[command][0]
    source = first.get("source") or first["total_source"]
    assert source.split()[0] in run(command, "--sources").stdout
    assert run(command).stdout != run(command, "--sources").stdout


@pytest.mark.parametrize(("command", "key"), [("models", "parameters"), ("gpus", "total_bytes")])
def test_the_catalogue_as_json(run: Any, command: str, key: str) -> None:
    done = run(command, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    entries = json.loads(done.stdout)[command]
    assert len(entries) >= 30
    assert all(isinstance(entry[key], int) and entry["name"] for entry in entries)


@pytest.mark.parametrize("command", ["models", "gpus"])
def test_a_pattern_that_matches_nothing_lists_nothing(run: Any, command: str) -> None:
    assert json.loads(run(command, "qqqq", "--json").stdout) == {command: []}
    assert run(command, "qqqq").returncode == 0


@pytest.mark.parametrize("command", ["models", "gpus", "env"])
def test_the_catalogue_and_the_environment_need_no_torch(run: Any, no_torch: dict[str, str], command: str) -> None:
    assert run(command, **no_torch).returncode == 0


@pytest.mark.parametrize("command", [("models",), ("gpus",), ("env",), ("gpus", "--sources"), ("models", "--sources")])
def test_tables_can_be_shown_anywhere(run: Any, on_terminal: Any, command: tuple[str, ...]) -> None:
    done = run(*command, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert ESCAPE not in run(*command).stdout
    assert on_terminal(40, *command)


def test_the_environment_names_versions_and_gpus(run: Any) -> None:
    facts = json.loads(run("env", "--json").stdout)["environment"]
    assert facts["memdoctor"] == memdoctor.__version__
    assert {"python", "torch", "transformers", "platform", "host memory"} <= set(facts)
    assert any("GPU" in name for name in facts)
    text = run("env").stdout
    assert all(str(value) in text for name, value in facts.items() if name != "host memory")


@pytest.mark.parametrize("kind", [(), ("diagnosis",), ("examination",)])
def test_a_schema_is_one(run: Any, kind: tuple[str, ...]) -> None:
    schema = json.loads(run("schema", *kind).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["kind"] == {"const": kind[0] if kind else "diagnosis"}


def test_the_version_is_told(run: Any) -> None:
    assert memdoctor.__version__ in run("--version").stdout


@pytest.mark.parametrize("command", ["models", "gpus", "env", "schema"])
def test_every_command_can_be_asked_for_the_traceback_of_a_bug(run: Any, command: str) -> None:
    assert run(command, "-v").returncode == 0
