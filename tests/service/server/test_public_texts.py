"""Texts for callers: names of roots in place of paths, and no words of storage clients."""

from __future__ import annotations

import pytest

from ffq_spark.service.server.public_texts import PublicTexts


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("no step 5", "no step 5"),
        ("damaged (file /data/lake/a/part-0.ipc)", "damaged (file lake/a/part-0.ipc)"),
        ("damaged (file /data/lake2/part-0.ipc)", "damaged (file other/part-0.ipc)"),
        ("/data/lake and s3://b/x and s3a://b/x/f", "lake and bucket and bucket/f"),
    ],
)
def test_paths_of_roots_become_names(text: str, public: str) -> None:
    roots = {
        "lake": ["/data/lake"],
        "other": ["/data/lake2"],
        "bucket": ["s3://b/x", "s3a://b/x"],
    }
    assert PublicTexts(roots).hide(text) == public


def test_a_name_that_contains_another_spelling_is_not_replaced_again() -> None:
    texts = PublicTexts({"data": ["/lake"], "x": ["/data"]})
    assert texts.hide("(file /lake/a)") == "(file data/a)"


def test_the_whole_disk_as_a_root_changes_paths_and_nothing_else() -> None:
    texts = PublicTexts({"disk": ["/"], "lake": ["/data/lake"]})
    text = "[FFQ_BAD_REQUEST] no such step (file /orders/_ffq/x). See docs/service.md and 5 / 6"
    assert texts.hide(text) == text.replace("/orders", "disk/orders")
    assert texts.hide("cannot open '/data/lake/f' or '/data/f'") == (
        "cannot open 'lake/f' or 'disk/data/f'"
    )


def test_a_service_without_roots_changes_nothing() -> None:
    assert PublicTexts({}).hide("a/b /c") == "a/b /c"


def test_only_texts_of_an_answer_change() -> None:
    answer = {"a": [1, None, True, "/x/f"], "b": {"c": "/x"}}
    assert PublicTexts({"x": ["/x"]}).hide_in(answer) == {
        "a": [1, None, True, "x/f"],
        "b": {"c": "x"},
    }
