"""A diagnosis as one HTML file: no network, no JavaScript needed, the same bytes for the same input.

The content security policy allows exactly the styles and scripts that are in the file, by their hashes, and nothing
else. Templates escape everything; drawings are escaped where they are made.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from memdoctor.difference import signed
from memdoctor.levers.wording import in_words
from memdoctor.records import Category, Diagnosis, Difference
from memdoctor.reports.advice import pasted, time_of
from memdoctor.reports.agreement import comparison_lines, counter_lines
from memdoctor.reports.checklist import cause_in_a_line
from memdoctor.reports.html.drawings import drawings_of
from memdoctor.reports.html.svg.capacity import card_bar
from memdoctor.reports.palette import COLOURS
from memdoctor.reports.text import cut, exact, plain, sentence
from memdoctor.reports.wording import growth_with_batch, peak_sum, prediction_beside_probe, setting_of, where_it_ran_out
from memdoctor.units import format_bytes

_HERE = Path(__file__).parent
MOST_ROWS = 200  # of a table of modules or tensors: the rest is in the JSON
_SCRIPTS = ("report.js", "uPlot.iife.min.js", "timeline.js")
_STYLES = ("report.css", "uPlot.min.css")


def render(diagnosis: Diagnosis) -> bytes:
    """The page of a diagnosis, in UTF-8."""
    drawn = drawings_of(diagnosis)
    scripts = _SCRIPTS if drawn.timeline_data else _SCRIPTS[:1]
    return _page(
        "page.html.j2", scripts, d=diagnosis, drawn=drawn, data=_data(drawn.timeline_data), **_sentences(diagnosis)
    )


def render_difference(difference: Difference) -> bytes:
    """The page of two that were compared, in UTF-8."""
    sides = (difference.a, difference.b)
    whole = max(max(side.device.total_bytes, side.device.total_bytes - side.breakdown.free) for side in sides)
    bars = [card_bar(side.breakdown, side.device, whole=whole) for side in sides]
    return _page("difference.html.j2", _SCRIPTS[:1], d=difference, bars=bars)


def _page(template: str, scripts: tuple[str, ...], **parts: Any) -> bytes:
    styles, code = _texts(_STYLES), _texts(scripts)
    policy = (
        f"default-src 'none'; style-src {_hashes(styles)}; script-src {_hashes(code)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    page = _environment().get_template(template)
    return page.render(policy=policy, styles=styles, scripts=code, most=MOST_ROWS, **parts).encode()


def _sentences(diagnosis: Diagnosis) -> dict[str, Any]:
    """What is said in the words of the terminal."""
    headline, _, why = diagnosis.verdict.sentence.partition(": ")
    scaling = diagnosis.scaling
    return {
        "headline": headline,
        "why": why,
        "setting": setting_of(diagnosis),
        "peak": peak_sum(diagnosis),
        "cause": cause_in_a_line(diagnosis),
        "ran_out": where_it_ran_out(diagnosis.ran_out) if diagnosis.ran_out else "",
        "paste": [line for entry in diagnosis.plan[:1] for line in pasted(entry) if line],
        "beside": list(comparison_lines(diagnosis.comparisons)),
        "counted": list(counter_lines(diagnosis.counters)),
        "held": [c.value for c in Category if any(getattr(use, c.value) for use in diagnosis.modules[:MOST_ROWS])],
        "growth": [growth_with_batch(scaling), prediction_beside_probe(scaling)] if scaling else [],
    }


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"), autoescape=True, finalize=_seen, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {
        "sentence": sentence, "size": format_bytes, "change": in_words, "cut": cut, "exact": exact, "time": time_of,
        "growth": signed,
        "words": lambda name: name.replace("_", " "),
    }  # fmt: skip
    made.globals["colours"] = COLOURS
    return made


def _seen(value: object) -> object:
    """Every text that is put into the page, without what would turn its line around."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _texts(names: tuple[str, ...]) -> tuple[Markup, ...]:
    """Our own files, which may stand in the page as they are."""
    found = [_HERE / "static" / name for name in names]
    return tuple(Markup(path.read_text(encoding="utf-8")) for path in found)


def _hashes(texts: tuple[Markup, ...]) -> str:
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts)


def _data(data: Any) -> Markup | None:
    """JSON for a script element: no text in it can end the element."""
    if data is None:
        return None
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
