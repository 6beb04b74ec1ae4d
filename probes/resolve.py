"""From a model's name to the facts of its config.json, without weights and, where possible, without a network.

Order: a local path; the hub's cache on this machine; the built-in catalogue; the hub. No torch is imported here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memdoctor.catalogue import find_model, near_models
from memdoctor.errors import InputError

FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")  # a module to import, and a function in it
FACTORY_KEY = "factory"  # in the facts of a model that a function makes
HUB_TIMEOUT = 5.0  # seconds for the hub to answer before it counts as out of reach

# RoBERTa and its relatives number positions from pad_token_id + 1 on, and lose that many of them.
_OFFSET_POSITIONS = {
    "roberta", "xlm-roberta", "camembert", "mpnet", "longformer", "xlm-roberta-xl", "roberta-prelayernorm",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What config.json says, where it was found, and the most tokens that its positions allow (``None``: no limit)."""

    name: str
    config: Mapping[str, Any]
    source: str
    max_seq_length: int | None


def resolve_model(name: str, *, offline: bool = False) -> ModelFacts:
    """Find the facts of ``name``. A ``package.module:function`` has none before the worker has called it.

    Raises:
        InputError: found nowhere; says where it was looked for, and what is near it.
    """
    if FACTORY.fullmatch(name) and not Path(name).exists():
        return ModelFacts(name, {FACTORY_KEY: name}, f"factory {name}", None)
    tried: list[str] = []
    lookups: tuple[Callable[[str], ModelFacts | str], ...] = (_local, _hub_cache, from_catalogue)
    if not (offline or os.environ.get("HF_HUB_OFFLINE") == "1"):
        lookups += (_hub,)
    for lookup in lookups:
        found = lookup(name)
        if isinstance(found, ModelFacts):
            return found
        tried.append(found)
    near = near_models(name)
    raise InputError(
        f"unknown model {name!r}",
        why=f"tried {'; '.join(tried)}",
        hint=f"{' or '.join(near)}; memdoctor models lists the catalogue" if near else "memdoctor models",
    )


def _local(name: str) -> ModelFacts | str:
    try:
        path = Path(name).expanduser()
        file = path / "config.json" if path.is_dir() else path
        if not file.is_file():
            return f"no config.json at the path {name}" if path.is_dir() else "no such path"
    except (OSError, RuntimeError, ValueError):  # too long, no such home, a null byte
        return "not a path"
    return _facts(name, _read_config(file), f"local file {file}")


def _hub_cache(name: str) -> ModelFacts | str:
    if not (Path.home() / ".cache" / "huggingface").is_dir() and not os.environ.keys() & {"HF_HOME", "HF_HUB_CACHE"}:
        return "no hub cache on this machine"  # saves an import
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError as error:
        return _no_hub(error)
    try:
        cached = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return "not a name the hub could have"
    if not isinstance(cached, str):
        return "not in the hub's cache"
    return _facts(name, _read_config(Path(cached)), "the hub's cache on this machine")


def from_catalogue(name: str) -> ModelFacts | str:
    """The facts that the built-in catalogue has, which are the same on every machine; or that it has none."""
    entry = find_model(name)
    if entry is None:
        return "not in the catalogue"
    config = {"model_type": entry.model_type, **entry.config}
    return ModelFacts(name, config, f"catalogue: {entry.name} ({entry.source})", entry.max_seq_length)


def _hub(name: str) -> ModelFacts | str:
    try:
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError as error:
        return _no_hub(error)
    disable_progress_bars()
    try:
        # Asks once, where a download asks six times before it gives up.
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=HUB_TIMEOUT)
        file = hf_hub_download(name, "config.json", etag_timeout=HUB_TIMEOUT)
    except HFValidationError:
        return "not a name the hub could have"
    except HfHubHTTPError as error:
        return f"the hub answered {error.response.status_code}" if error.response is not None else "the hub refused"
    except Exception as error:  # noqa: BLE001 - the client raises whatever its transport raises
        return f"the hub is out of reach ({type(error).__name__})"
    return _facts(name, _read_config(Path(file)), "the hub")


def _no_hub(error: ImportError) -> str:
    return f"huggingface_hub cannot be imported ({' '.join(str(error).split())}; pip check)"


def _read_config(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read as a model's config.json", why=str(error)) from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise InputError(f"{file} is not a model's config.json", why="it has no model_type")
    return config


def _facts(name: str, config: Mapping[str, Any], source: str) -> ModelFacts:
    return ModelFacts(name, config, source, _longest_input(config))


def _longest_input(config: Mapping[str, Any]) -> int | None:
    positions = config.get("max_position_embeddings") or config.get("n_positions")
    if not isinstance(positions, int) or positions < 1:
        return None
    if config["model_type"] in _OFFSET_POSITIONS:
        pad = config.get("pad_token_id")
        return positions - (pad if isinstance(pad, int) else 1) - 1
    return positions
