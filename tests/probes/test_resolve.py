"""Where a model's facts come from: a path, the hub's cache, the catalogue, the hub; in this order, and said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from memdoctor.errors import InputError
from memdoctor.probes.resolve import resolve_model

BERT = {"model_type": "bert", "max_position_embeddings": 77}
NO_HUB = "http://127.0.0.1:9"  # nobody listens on the discard port
# A process of its own: the hub's client reads its environment once, when it is imported.
RESOLVE = """
import json, sys
from memdoctor.errors import InputError
from memdoctor.probes import resolve
resolve.HUB_TIMEOUT = 0.5
try:
    facts = resolve.resolve_model(sys.argv[1], offline=sys.argv[2] == "offline")
except InputError as error:
    print(json.dumps({"what": error.what, "why": error.why, "hint": error.hint}))
else:
    print(json.dumps({"source": facts.source, "longest": facts.max_seq_length}))
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine with a hub's cache, a folder to work in and a hub."""

    path: Path
    hub: str = NO_HUB

    def keep(self, name: str, config: Mapping[str, Any]) -> None:
        """Put a config.json into the hub's cache, laid out as huggingface_hub does."""
        repo = self.path / "hf" / "hub" / f"models--{name.replace('/', '--')}"
        snapshot = repo / "snapshots" / ("a" * 40)
        snapshot.mkdir(parents=True)
        (repo / "refs").mkdir()
        (repo / "refs" / "main").write_text("a" * 40, encoding="utf-8")
        (snapshot / "config.json").write_text(json.dumps(config), encoding="utf-8")

    def resolve(self, name: str, *, offline: bool = False, **environment: str) -> dict[str, Any]:
        """The facts found there, or the error's parts."""
        settings = {**os.environ, "HF_HOME": str(self.path / "hf"), "HF_ENDPOINT": self.hub, **environment}
        kept = {
            key: value
            for key, value in settings.items()
            if key in environment or key not in ("HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_TOKEN")
        }
        command = [sys.executable, "-c", RESOLVE, name, "offline" if offline else "online"]
        done = subprocess.run(command, cwd=self.path, env=kept, capture_output=True, text=True, check=True, timeout=60)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine whose hub is out of reach."""
    return Machine(tmp_path)


@dataclass(slots=True)
class Hub:
    """A hub that has models whose name contains ``here``, and what it was asked for about models."""

    url: str = ""
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub on this machine."""
    seen = Hub()
    body = json.dumps(BERT).encode()

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(b"")

        def do_GET(self) -> None:
            self.answer(body)

        def answer(self, content: bytes) -> None:
            if "/resolve/" in self.path:
                seen.asked.append(f"{self.command} {self.path}")
            here = "here" in self.path
            self.send_response(200 if here else 404)
            self.send_header("Content-Length", str(len(body) if here else 0))
            if here:
                self.send_header("ETag", '"abc"')
                self.send_header("X-Repo-Commit", "b" * 40)
            self.end_headers()
            if here:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    seen.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield seen
    server.shutdown()
    server.server_close()


def write_config(path: Path, config: Any) -> str:
    """Write a config.json and return its path as one types it."""
    file = path / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return str(file)


def test_a_directory_is_its_config(tmp_path: Path) -> None:
    file = write_config(tmp_path, {**BERT, "hidden_size": 8})
    facts = resolve_model(str(tmp_path))
    assert facts.config == {**BERT, "hidden_size": 8}
    assert (facts.name, facts.max_seq_length) == (str(tmp_path), 77)
    assert file in facts.source


def test_a_config_file_is_taken_by_its_own_path(tmp_path: Path) -> None:
    assert resolve_model(write_config(tmp_path, BERT)).config == BERT


def test_a_config_of_any_name_is_taken(tmp_path: Path) -> None:
    (tmp_path / "my bert ü.json").write_text(json.dumps(BERT), encoding="utf-8")
    assert resolve_model(str(tmp_path / "my bert ü.json")).config == BERT


def test_the_home_directory_may_be_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_config(tmp_path, BERT)
    assert resolve_model("~").config == BERT


def test_a_directory_without_a_config_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        resolve_model(str(tmp_path))
    assert f"no config.json at the path {tmp_path}" in caught.value.why


@pytest.mark.parametrize(
    "config",
    ["", "{", "\x00", "[1]", "null", "1", '"bert"', "{}", '{"model_type": 1}', '{"model_type": null}', "[" * 100_000],
    ids=lambda config: config[:20],
)
def test_a_config_that_is_none_is_refused_by_its_path(tmp_path: Path, config: str) -> None:
    file = write_config(tmp_path, config)
    with pytest.raises(InputError) as caught:
        resolve_model(str(tmp_path))
    assert file in caught.value.what
    assert caught.value.why
    assert len(str(caught.value)) < 1000


def test_weights_in_place_of_a_config_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(range(256)) * 10)
    with pytest.raises(InputError, match=r"model\.safetensors"):
        resolve_model(str(tmp_path / "model.safetensors"))


@pytest.mark.parametrize("name", ["x" * 300, "~nobody-of-this-name/model", "a" * 5000])
def test_a_name_that_no_file_can_have_is_an_unknown_model(name: str) -> None:
    with pytest.raises(InputError, match="unknown model") as caught:
        resolve_model(name)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a/b/c", "../x", "-m", "https://huggingface.co/bert-base-uncased", "é"]
)
def test_a_name_that_no_hub_can_have_is_an_unknown_model(name: str, tmp_path: Path) -> None:
    answer = Machine(tmp_path).resolve(name)
    assert "unknown model" in answer["what"]


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        ({"model_type": "bert", "max_position_embeddings": 512, "pad_token_id": 0}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": None}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 0}, 513),
        ({"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "camembert", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "mpnet", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "longformer", "max_position_embeddings": 4098, "pad_token_id": 1}, 4096),
        ({"model_type": "distilbert", "max_position_embeddings": 512, "pad_token_id": 0}, 512),
        ({"model_type": "gpt2", "n_positions": 1024}, 1024),
        ({"model_type": "xlnet"}, None),
        ({"model_type": "bert", "max_position_embeddings": -1}, None),
        ({"model_type": "bert", "max_position_embeddings": "many"}, None),
    ],
)
def test_the_longest_input_is_what_the_positions_allow(
    tmp_path: Path, config: dict[str, Any], longest: int | None
) -> None:
    write_config(tmp_path, config)
    assert resolve_model(str(tmp_path)).max_seq_length == longest


@pytest.mark.parametrize("pad", ["one", [1], {}])
def test_a_padding_token_that_is_no_number_is_no_bug(tmp_path: Path, pad: Any) -> None:
    write_config(tmp_path, {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": pad})
    with suppress(InputError):
        assert resolve_model(str(tmp_path)).max_seq_length in (512, 514, None)


def test_the_catalogue_needs_neither_cache_nor_hub(machine: Machine) -> None:
    assert machine.resolve("bert-base-uncased")["source"].startswith("catalogue: bert-base-uncased")


def test_an_alias_is_found_and_the_entry_named(machine: Machine) -> None:
    assert machine.resolve("google-bert/bert-base-uncased")["source"].startswith("catalogue: bert-base-uncased")


def test_the_cache_of_the_hub_is_read(machine: Machine) -> None:
    machine.keep("me/mine", BERT)
    assert machine.resolve("me/mine") == {"source": "the hub's cache on this machine", "longest": 77}


def test_a_broken_config_in_the_cache_is_refused(machine: Machine) -> None:
    machine.keep("me/mine", {"no": "type"})
    assert "model_type" in machine.resolve("me/mine")["why"]


def test_the_cache_comes_before_the_catalogue(machine: Machine) -> None:
    machine.keep("bert-base-uncased", BERT)
    assert machine.resolve("bert-base-uncased")["longest"] == 77


def test_a_local_path_comes_before_everything(machine: Machine) -> None:
    machine.keep("bert-base-uncased", BERT)
    (machine.path / "bert-base-uncased").mkdir()
    write_config(machine.path / "bert-base-uncased", {**BERT, "max_position_embeddings": 33})
    assert machine.resolve("bert-base-uncased")["longest"] == 33


def test_a_directory_without_a_config_does_not_hide_the_model_of_its_name(machine: Machine) -> None:
    (machine.path / "bert-base-uncased").mkdir()
    assert machine.resolve("bert-base-uncased")["source"].startswith("catalogue")


def test_the_hub_is_asked_last(tmp_path: Path, hub: Hub) -> None:
    machine = Machine(tmp_path, hub.url)
    assert machine.resolve("bert-base-uncased")["source"].startswith("catalogue")
    assert hub.asked == []
    assert machine.resolve("me/here") == {"source": "the hub", "longest": 77}
    assert hub.asked


def test_what_the_hub_gave_is_in_the_cache_the_next_time(tmp_path: Path, hub: Hub) -> None:
    Machine(tmp_path, hub.url).resolve("me/here")
    assert Machine(tmp_path).resolve("me/here")["source"] == "the hub's cache on this machine"


def test_a_model_that_the_hub_has_not_is_asked_for_once(tmp_path: Path, hub: Hub) -> None:
    answer = Machine(tmp_path, hub.url).resolve("me/missing")
    assert "404" in answer["why"]
    assert len(hub.asked) == 1


@pytest.mark.parametrize("said", ["option", "1", "true", "YES"])
def test_offline_the_hub_is_not_asked(tmp_path: Path, hub: Hub, said: str) -> None:
    machine = Machine(tmp_path, hub.url)
    if said == "option":
        answer = machine.resolve("me/here", offline=True)
    else:
        answer = machine.resolve("me/here", HF_HUB_OFFLINE=said)
    assert "unknown model" in answer["what"]
    assert hub.asked == []


def test_offline_the_cache_is_read(machine: Machine) -> None:
    machine.keep("me/mine", BERT)
    assert machine.resolve("me/mine", offline=True)["longest"] == 77


def test_a_hub_out_of_reach_gives_one_error_that_says_where_was_looked(machine: Machine) -> None:
    answer = machine.resolve("bert-base-uncasd")
    assert "bert-base-uncasd" in answer["what"]
    assert "out of reach" in answer["why"]
    assert "catalogue" in answer["why"]
    assert "cache" in answer["why"]
    assert answer["hint"].startswith("bert-base-uncased")
    assert len("".join(answer.values())) < 1000


def test_a_hub_that_never_answers_is_out_of_reach(tmp_path: Path) -> None:
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        answer = Machine(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}").resolve("me/slow")
    assert "out of reach" in answer["why"]


def test_a_hub_client_that_cannot_be_imported_is_no_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert resolve_model("bert-base-uncased").source.startswith("catalogue: ")
    with pytest.raises(InputError) as caught:
        resolve_model("nobody/nothing")
    assert caught.value.why.count("huggingface_hub cannot be imported") == 2  # its cache, and the hub
