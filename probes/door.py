"""The one door to NVML: every question goes through it, and no answer of the library's is an exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memdoctor.probes.seen import Unknown, Why

# Error codes of nvml.h (nvmlReturn_t).
_WHY = {3: Why.NOT_SUPPORTED, 4: Why.NO_PERMISSION, 13: Why.NO_FUNCTION, 15: Why.LOST}
_MISMATCH = "NVMLLibraryMismatchError"  # pynvml's, outside of its own tree: the driver lacks the function


class Door:
    """The library, started. It is given, not imported, so that this file knows no pynvml."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def ask(self, function: str, *arguments: Any, read: Callable[[Any], Any] | None = None, **keywords: Any) -> Any:
        """What the function answers, text decoded, put through ``read``; or :class:`Unknown`."""
        call = getattr(self._library, function, None)
        if call is None:
            return Unknown(f"this pynvml has no {function}", Why.NO_FUNCTION)
        try:
            answer = decoded(call(*arguments, **keywords))
            return answer if read is None else read(answer)
        except Exception as error:  # noqa: BLE001 - NVML's errors, pynvml's own, what ctypes raises, fields not there
            return Unknown(text_of(error), why_of(error))

    def ask_first(self, functions: tuple[str, ...], *arguments: Any, read: Callable[[Any], Any] | None = None) -> Any:
        """What the first of these functions answers that both pynvml and the driver have."""
        answer: Any = Unknown("nothing was asked")
        for function in functions:
            answer = self.ask(function, *arguments, read=read)
            if not (isinstance(answer, Unknown) and answer.why is Why.NO_FUNCTION):
                break
        return answer

    def constant(self, name: str) -> Any:
        """A constant of the library, or ``None`` where this pynvml does not have it."""
        return getattr(self._library, name, None)


def decoded(answer: Any) -> Any:
    """Text where the library gave bytes; releases of pynvml differ."""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


def code_of(error: Exception) -> int:
    """NVML's number for the error, -1 for what is none of NVML's."""
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else -1


def why_of(error: Exception) -> Why:
    """The error in our words."""
    missing = type(error).__name__ == _MISMATCH
    return Why.NO_FUNCTION if missing else _WHY.get(code_of(error), Why.FAILED)


def text_of(error: Exception) -> str:
    """The error in NVML's words."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 - pynvml asks the library for the text of a code that it does not know
        return f"{type(error).__name__} {code_of(error)}"
