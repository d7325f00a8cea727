"""The form in which callers see texts of the service: with names of roots, without paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ffq_spark.store.failures import without_client_words

_SPILLING = re.compile(r"(cannot spill to local disk) in .*?(?=: )")
# The root of the file system is part of every path, so a name replaces only a leading slash.
_LEADING_SLASH = re.compile(r"(?<![^\s('\"])/(?=[^\s/])")


class PublicTexts:
    """Replace the spellings of roots in texts by the names of the roots.

    >>> texts = PublicTexts({"lake": ["s3://bucket/lake", "s3a://bucket/lake"]})
    >>> texts.hide("corrupt part (file s3://bucket/lake/a/part-0.ipc)")
    'corrupt part (file lake/a/part-0.ipc)'
    """

    def __init__(self, spellings: Mapping[str, Iterable[str]]) -> None:
        pairs = [(spelling, name) for name, given in spellings.items() for spelling in given]
        self._names = {spelling: name for spelling, name in pairs if spelling.strip("/")}
        self._whole_disk = next((name for spelling, name in pairs if spelling == "/"), None)
        longest_first = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def hide(self, text: str) -> str:
        """Return a text without paths of roots, and without the words of storage clients."""
        text = _SPILLING.sub(r"\1", without_client_words(text))
        text = self._pattern.sub(lambda match: self._names[match[0]], text)
        if self._whole_disk is not None:
            text = _LEADING_SLASH.sub(f"{self._whole_disk}/", text)
        return text

    def hide_in(self, answer: Any) -> Any:
        """Return a JSON value in which every text is public.

        >>> PublicTexts({"x": ["/data/x"]}).hide_in({"inactive": {"5": "unreadable: /data/x/f"}})
        {'inactive': {'5': 'unreadable: x/f'}}
        """
        if isinstance(answer, str):
            return self.hide(answer)
        if isinstance(answer, dict):
            return {name: self.hide_in(value) for name, value in answer.items()}
        if isinstance(answer, list):
            return [self.hide_in(value) for value in answer]
        return answer
