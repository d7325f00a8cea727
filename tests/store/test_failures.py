"""Descriptions of storage failures, and their short form."""

from __future__ import annotations

import pytest

from ffq_spark.errors import StoreFailed
from ffq_spark.store.failures import describe, without_client_words
from ffq_spark.store.retry import GaveUp

ERRORS = [
    TimeoutError(),
    OSError(13, "Permission denied", "/secret/x"),
    ValueError("secret: two\nlines (of secret): cannot read: Secret: x"),
    GaveUp("gave up after 3 tries in 0.5 s: EndpointConnectionError: at http://secret:9000/b"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("verb", ["create", "delete", "list", "read", "write"])
@pytest.mark.parametrize("path", [None, "s3://b/x/f"])
def test_the_short_form_keeps_the_verb_the_error_and_the_file(
    verb: str, error: Exception, path: str | None
) -> None:
    text = without_client_words(str(StoreFailed(describe(verb, error), path=path)))
    assert "secret" not in text.lower()
    assert text.startswith(f"[FFQ_STORE_FAILED] cannot {verb}: ")
    name = "EndpointConnectionError" if isinstance(error, GaveUp) else type(error).__name__
    assert name in text and (path is None or f"(file {path})" in text)


def test_texts_of_people_stay() -> None:
    """Only errors of this product are shortened, not the reason of a cancel."""
    assert without_client_words("cannot read: Ada: too slow") == "cannot read: Ada: too slow"
