"""Reports without what tells whose machine they are from: paths, host names, user names, and models by their path.

Everything is found in the texts of the report itself, with what the caller knows beside it; the same thing is always
put by the same word, with a number where there are several of its kind. Names of modules, of models on the hub and of
files within public repositories stay: they are what the report is about.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from memdoctor.records import Provenance, Timeline, Workload

_T = TypeVar("_T")

COMMON_NAMES = frozenset({
    "admin", "administrator", "app", "azureuser", "colab", "default", "docker", "ec2-user", "home", "jovyan",
    "kaggle", "localhost", "localdomain", "nobody", "public", "root", "runner", "sagemaker-user", "shared", "ubuntu",
    "user", "users", "work", "worker", "workspace",
})  # fmt: skip
"""Accounts and hosts that are called the same on many machines: they tell nothing of anybody."""

_IN_PATH = r"[^\s'\"`<>|;,()\[\]{}]"
_PATH = re.compile(
    r"(?P<quote>['\"`])(?P<quoted>(?:/|~[\w.-]*/|\.{1,2}/|[A-Za-z]:[\\/]|\\\\)[^'\"`\n]*)(?P=quote)"
    rf"|(?P<bare>file:/+{_IN_PATH}+"
    rf"|(?<![A-Za-z0-9])[A-Za-z]:(?:\\|/(?!/)){_IN_PATH}*"
    rf"|(?<![\w\\])\\\\{_IN_PATH}+"
    rf"|(?<![\w/.~-])(?:~[\w.-]*/|\.{{1,2}}/|/(?!/)){_IN_PATH}*)"
)
_HOMES = re.compile(r"(?:(?:/|\\{1,2})(?:home|users)(?:/|\\{1,2})|(?<![\w/])~)([^\s/\\'\"`<>:;,()]+)", re.IGNORECASE)
_ADDRESS = re.compile(r"(?<![\w.+-])([\w.+-]+)@([A-Za-z][\w-]*(?:\.[\w-]+)*)")
_LOCAL_SOURCE = "local file "  # before the path of a model's config.json, in a provenance
_WHOLE = r"(?<![^\W_])(?:{})(?![^\W_])"  # letters and digits around it would make it another word


@dataclass(frozen=True, slots=True)
class Private:
    """What is known to be private beside what is found: names of users and hosts, and models that are paths here."""

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


def private_here(environ: Mapping[str, str] | None = None) -> Private:
    """The user and the host of this process. A model is told by its path being there: see :func:`local_models`."""
    environ = os.environ if environ is None else environ
    users = [environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")]
    with suppress(OSError, KeyError, ImportError):  # a container's user without an entry
        users.append(getpass.getuser())
    users.append(Path(environ.get("HOME", "")).name)
    host = socket.gethostname()
    return Private(users=tuple(filter(None, users)), hosts=(host, host.partition(".")[0]))


def local_models(report: object) -> tuple[str, ...]:
    """The models of a report that are files or directories on this machine."""
    found = (item.model for item in _records(report) if isinstance(item, Workload))
    return tuple(dict.fromkeys(name for name in found if _is_here(name)))


def redacted_here(report: _T) -> _T:
    """The report without what is private on this machine, or on the one that it is from."""
    return redaction_of([report], replace(private_here(), models=local_models(report))).of(report)


def redact(report: _T, private: Private) -> _T:
    """The report without anything private, known or found in its texts."""
    return redaction_of([report], private).of(report)


def redacted_text(text: str) -> str:
    """A text without anything private, known here or found in it."""
    return redaction_of([text], private_here()).of(text)


@dataclass(frozen=True, slots=True)
class Redaction:
    """Puts words in place of what is private: ``literals`` wherever they stand, then paths, then ``names``."""

    literals: re.Pattern[str] | None
    names: re.Pattern[str] | None
    words: Mapping[tuple[str, str], str]
    made: dict[str, str] = field(default_factory=dict)

    def of(self, value: _T) -> _T:
        """The same record, mapping, tuple or text; itself where nothing of it is private."""
        return _mapped(value, self._text)  # type: ignore[no-any-return]

    def _text(self, text: str) -> str:
        if text not in self.made:
            self.made[text] = self._redacted(text)
        return self.made[text]

    def _redacted(self, text: str) -> str:
        kept: list[str] = []

        def put(word: str) -> str:
            # Held back behind a character that no text has, so that nothing is looked for in what was put.
            kept.append(word)
            return f"\0{len(kept) - 1}\0"

        clean = text.replace("\0", "")
        if self.literals is not None:
            clean = self.literals.sub(lambda found: put(self.words["local model", found[0].casefold()]), clean)
        clean = _PATH.sub(partial(self._path, put), clean)
        if self.names is not None:
            clean = self.names.sub(lambda found: put(self.words["name", found[0].casefold()]), clean)
        return re.sub("\0(\\d+)\0", lambda found: kept[int(found[1])], clean) if kept else text

    def _path(self, put: Any, found: re.Match[str]) -> str:
        path, before, after = _parts(found)
        if not _is_path(path):
            return found[0]
        return f"{before}{put(self.words.get(('path', path), '<path>'))}{after}"


def redaction_of(values: Iterable[object], private: Private) -> Redaction:
    """What to put for everything private in these values, by order of appearance."""
    values = list(values)
    texts = list(dict.fromkeys(text for value in values for text in _texts(value)))
    models = [*private.models, *(name for value in values for name in _models_by_path(value))]
    models = sorted({name for name in models if name}, key=lambda name: (-len(name), name))
    users, hosts = _people(texts, private)
    literals = _alternatives(models, r"(?<![\w/.-])(?:{})(?![\w-]|\.\w)")
    words: dict[tuple[str, str], str] = {}
    words |= _numbered("local model", [name.casefold() for name in models], "local model")
    words |= _numbered("name", users, "user") | _numbered("name", [host for host in hosts if host not in users], "host")
    words |= _numbered("path", _paths(texts, literals), "path")
    return Redaction(literals, _alternatives([*users, *hosts], _WHOLE), words)


def _numbered(kind: str, things: Iterable[str], word: str) -> dict[tuple[str, str], str]:
    unique = list(dict.fromkeys(things))
    several = len(unique) > 1
    return {(kind, thing): f"<{word} {index}>" if several else f"<{word}>" for index, thing in enumerate(unique, 1)}


def _alternatives(words: Iterable[str], around: str) -> re.Pattern[str] | None:
    longest_first = sorted(set(words), key=lambda word: (-len(word), word))
    if not longest_first:
        return None
    return re.compile(around.format("|".join(map(re.escape, longest_first))), re.IGNORECASE)


def _people(texts: Iterable[str], private: Private) -> tuple[list[str], list[str]]:
    """Users and hosts, in lower case: those known, those whose homes are named, and those of addresses."""
    users, hosts = [*private.users], [*private.hosts]
    for text in texts:
        users += _HOMES.findall(text)
        for user, host in _ADDRESS.findall(text):
            users.append(user)
            hosts.append(host)
    return _telling(users), _telling(hosts)


def _telling(names: Iterable[str]) -> list[str]:
    """Names that tell who somebody is: of two characters and more, and not everybody's."""
    clean = (name.strip(".").casefold() for name in names)
    return list(dict.fromkeys(name for name in clean if len(name) > 1 and name not in COMMON_NAMES))


def _paths(texts: Iterable[str], literals: re.Pattern[str] | None) -> Iterator[str]:
    for text in texts:
        for found in _PATH.finditer(literals.sub("\0", text) if literals else text):
            path = _parts(found)[0]
            if _is_path(path):
                yield path


def _parts(found: re.Match[str]) -> tuple[str, str, str]:
    """A path, and what was found around it: quotes, and the sentence's own full stop."""
    if found["quoted"] is not None:
        return found["quoted"], found["quote"], found["quote"]
    path = found["bare"].rstrip(".:!?")
    return path, "", found["bare"][len(path) :]


def _is_path(text: str) -> bool:
    """Not a lone slash, and not an arithmetic one."""
    return any(character.isalpha() or character == "~" for character in text)


def _models_by_path(value: object) -> Iterator[str]:
    """Models of these records that are paths: written like one, or read from a local file."""
    records = list(_records(value))
    local = any(isinstance(item, Provenance) and item.model_source.startswith(_LOCAL_SOURCE) for item in records)
    for item in records:
        if isinstance(item, Provenance) and item.model_source.startswith(_LOCAL_SOURCE):
            yield item.model_source.removeprefix(_LOCAL_SOURCE)
        if isinstance(item, Workload) and (local or _PATH.fullmatch(item.model)):
            yield item.model


def _is_here(name: str) -> bool:
    try:
        return Path(name).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False


def _records(value: object) -> Iterator[object]:
    """Every record within, but for the timeline's."""
    if isinstance(value, Timeline | str):
        return
    if is_dataclass(value) and not isinstance(value, type):
        yield value
        for item in fields(value):
            yield from _records(getattr(value, item.name))
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _records(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _records(part)


def _texts(value: object) -> Iterator[str]:
    """Every text within, in order; of a timeline each once."""
    if isinstance(value, Enum):
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, Timeline):
        yield from dict.fromkeys(text for block in value.blocks for text in (block.module, block.op, block.dtype))
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            yield from _texts(getattr(value, item.name))
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _texts(part)


def _mapped(value: Any, text: Any) -> Any:
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Timeline):
        return _mapped_timeline(value, text)
    if is_dataclass(value) and not isinstance(value, type):
        made = {item.name: _mapped(getattr(value, item.name), text) for item in fields(value)}
        changed = {name: new for name, new in made.items() if new is not getattr(value, name)}
        return replace(value, **changed) if changed else value
    if isinstance(value, Mapping):
        pairs = {name: _mapped(part, text) for name, part in value.items()}
        return pairs if any(pairs[name] is not value[name] for name in pairs) else value
    if isinstance(value, tuple | list):
        parts = [_mapped(part, text) for part in value]
        same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if same else type(value)(parts)
    return value


def _mapped_timeline(timeline: Timeline, text: Any) -> Timeline:
    """Only blocks whose texts change are made anew: mostly none."""
    seen = dict.fromkeys(part for block in timeline.blocks for part in (block.module, block.op, block.dtype))
    new = {old: made for old in seen if (made := text(old)) != old}
    if not new:
        return timeline
    blocks = tuple(
        replace(
            block, module=new.get(block.module, block.module), op=new.get(block.op, block.op),
            dtype=new.get(block.dtype, block.dtype),
        )
        if block.module in new or block.op in new or block.dtype in new
        else block
        for block in timeline.blocks
    )  # fmt: skip
    return replace(timeline, blocks=blocks)
