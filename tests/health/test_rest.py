"""A running application, as Spark's REST service describes it."""

from __future__ import annotations

import pytest

from ffq_spark.errors import BadOption, NoAnswer
from ffq_spark.health.rest import running


def test_an_address_that_is_none_or_does_not_answer_is_an_error() -> None:
    with pytest.raises(BadOption):
        running("file:///etc/passwd")
    with pytest.raises(NoAnswer):
        running("http://127.0.0.1:1")


URLS = [
    *("http://u:PW@127.0.0.1:1", "htp//u:PW@host", "http://u:P@W@host"),
    *("htp//u%3APW%40host", "htp//host?token=PW", "htp//host;sig=PW"),
]


@pytest.mark.parametrize("url", URLS)
def test_a_login_in_the_address_of_an_application_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadOption) as caught:
        running(url)
    assert "PW" not in str(caught.value) and "P@W" not in str(caught.value)
