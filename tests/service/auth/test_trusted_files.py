"""Files that other users may change or replace are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from service_scene import token_file

import ffq_spark as ffq
from ffq_spark.errors import BadOption


def test_a_directory_in_which_anybody_may_replace_the_file_is_refused(
    tmp_path: Path, root: str
) -> None:
    place = tmp_path / "open"
    place.mkdir()
    file, _ = token_file(place, first=(["read"], None))
    place.chmod(0o777)
    with pytest.raises(BadOption, match=r"chmod"):
        ffq.serve({"x": root}, port=0, tokens=file)
    # A directory like /tmp: others may add files, but not replace this one.
    place.chmod(0o1777)
    with ffq.serve({"x": root}, port=0, tokens=file):
        pass


def test_certificates_that_others_may_change_are_refused(tmp_path: Path, root: str) -> None:
    """Whoever can change certificates decides who has access, and who the server is."""
    authority = trustme.CA()
    made = authority.issue_cert("localhost")
    blobs = {
        "tls_certificate": made.cert_chain_pems[0],
        "tls_key": made.private_key_pem,
        "tls_client_ca": authority.cert_pem,
    }
    files = {name: tmp_path / name for name in blobs}
    for name, file in files.items():
        file.write_bytes(blobs[name].bytes())
        file.chmod(0o600)
    given = {name: str(file) for name, file in files.items()}
    for file in files.values():
        file.chmod(0o606)
        with pytest.raises(BadOption, match=r"chmod"):
            ffq.serve({"x": root}, port=0, **given)
        file.chmod(0o600)
    with ffq.serve({"x": root}, port=0, **given):
        pass
