"""The messages of storage failures, and their short form for callers who may not see details."""

from __future__ import annotations

import re

from ffq_spark.store.retry import GaveUp

# The words of a client end where the error's subject begins, or with the text.
_FAILURE = re.compile(
    r"(cannot (?:create|delete|list|read|write): (?:gave up after [^:]+: )?\w+): "
    r".*?(?= \(file |\Z)",
    re.DOTALL,
)
_CODE = "[FFQ_"


def describe(verb: str, error: Exception) -> str:
    """Describe the failure of an operation in the words of the storage's client.

    >>> describe("read", TimeoutError("no answer from http://minio:9000"))
    'cannot read: TimeoutError: no answer from http://minio:9000'
    """
    reason = str(error) if isinstance(error, GaveUp) else f"{type(error).__name__}: {error}"
    return f"cannot {verb}: {reason}"


def without_client_words(text: str) -> str:
    """Shorten every described failure in the text of an error to the name of the client's error.

    >>> without_client_words("[FFQ_STORE_FAILED] cannot read: OSError: no bucket (file a/x). Try")
    '[FFQ_STORE_FAILED] cannot read: OSError (file a/x). Try'
    """
    return _FAILURE.sub(r"\1", text) if _CODE in text else text
