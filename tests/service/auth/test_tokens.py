"""Files of tokens: strict entries, and the command that adds to them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from service_scene import COMMAND, serving

import ffq_spark as ffq
from ffq_spark.errors import (
    BadOption,
    Unauthenticated,
)
from ffq_spark.service.auth.tokens import Tokens


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"name": "x", "sha256": "0" * 64},
        {"name": "x", "sha256": "0" * 63, "scopes": ["read"]},
        {"name": "x", "sha256": "0" * 64, "scopes": "read"},
        {"name": "x", "sha256": "0" * 64, "scopes": ["admin"]},
        {"name": "x", "sha256": "0" * 64, "scopes": ["read"], "root": ["lake"]},
        {"name": "x", "sha256": "0" * 64, "scopes": ["read"], "roots": "lake"},
        {"name": "x", "sha256": "0" * 64, "scopes": [[]]},
        {"name": "x", "sha256": "0" * 64, "scopes": [{}]},
        {"name": "x", "sha256": "0" * 64, "scopes": ["read"], "roots": [[]]},
        {"name": "x", "sha256": "0" * 64, "scopes": ["read"], "roots": [1]},
        {"name": "x", "sha256": "0" * 64, "scopes": ["read"], "roots": None},
        "x",
    ],
    ids=str,
)
def test_a_mistake_in_the_file_of_tokens_opens_nothing(entry: Any) -> None:
    with pytest.raises(BadOption):
        Tokens([entry])


def test_the_command_makes_tokens(lake: Path) -> None:
    file = str(lake / "t.json")

    def make(name: str, *flags: str) -> subprocess.CompletedProcess[bytes]:
        command = [COMMAND, "token", name, "--file", file, "--json", *flags]
        return subprocess.run(command, capture_output=True, check=False)

    made = make("reader", "--scope", "read", "--root", "second")
    secret = json.loads(made.stdout)["token"]
    assert make("etl", "--scope", "read", "--scope", "write").returncode == 0
    assert make("etl", "--scope", "read").returncode == 2
    assert os.stat(file).st_mode & 0o777 == 0o600
    roots = [str(lake / "lake"), f"second={lake / 'other'}"]
    with serving(*roots, "--tokens", file) as server:
        assert ffq.connect(server.url, secret).exchanges() == ["second"]
        with pytest.raises(Unauthenticated):
            ffq.connect(server.url).exchanges()


@pytest.mark.parametrize("text", ["", "{}", "[", "[" * 100_000, "\udcff", "[1]"], ids=len)
def test_a_file_that_is_no_list_of_tokens_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tokens.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadOption):
        Tokens.load(str(file))
