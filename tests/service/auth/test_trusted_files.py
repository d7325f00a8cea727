"""Files that other users may change or replace are refused."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import trustme
from service_scene import token_file

import ffq_spark as ffq
from ffq_spark.errors import BadOption
from ffq_spark.service.auth.trusted_files import read_trusted

STRANGER = 65533
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """Make a file that can be trusted, in a directory of its own."""
    file = tmp_path / "etc" / "ffq" / "tokens.json"
    file.parent.mkdir(parents=True)
    file.write_text("[]")
    file.chmod(0o600)
    for directory in (file.parent, file.parent.parent):
        directory.chmod(0o755)
    return file


def is_trusted(path: Path | str) -> bool:
    try:
        return read_trusted(str(path), "tokens") == b"[]"
    except BadOption as error:
        assert error.option == "tokens"
        return False


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


def test_a_file_of_this_account_below_directories_of_root_is_trusted(tokens: Path) -> None:
    assert is_trusted(tokens)


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o775])
@pytest.mark.parametrize("level", [1, 2])
def test_a_directory_that_others_may_write_to_is_refused_anywhere_on_the_path(
    tokens: Path, level: int, mode: int
) -> None:
    directory = tokens.parents[level - 1]
    if os.geteuid() == 0:
        os.chown(directory, 0, STRANGER)
    elif mode == 0o775:
        pytest.skip("the group of a new directory may be private")
    directory.chmod(mode)
    with pytest.raises(BadOption, match=f"may write to {directory}: .*chmod go-w"):
        read_trusted(str(tokens), "tokens")
    directory.chmod(mode | 0o1000)
    assert is_trusted(tokens)


@needs_root
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_file_or_directory_of_another_user_is_refused(tokens: Path, level: int) -> None:
    path = [tokens, *tokens.parents][level]
    os.chown(path, STRANGER, STRANGER)
    with pytest.raises(BadOption, match=f"{path} belongs to the user {STRANGER}"):
        read_trusted(str(tokens), "tokens")


@pytest.mark.skipif(os.geteuid() == 0, reason="the files of root are always trusted")
def test_a_file_of_another_account_is_refused(
    tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not is_trusted(tokens)


@pytest.mark.parametrize("hop", ["absolute", "relative", "directory"])
def test_every_link_is_followed_and_the_directories_of_each_are_checked(
    tokens: Path, tmp_path: Path, hop: str
) -> None:
    first, middle = tmp_path / "first", tmp_path / "middle"
    first.mkdir(mode=0o755)
    middle.mkdir(mode=0o755)
    targets = {
        "absolute": (tokens, middle / "link", first / "tokens.json"),
        "relative": ("../etc/ffq/tokens.json", "../middle/link", first / "tokens.json"),
        "directory": (tokens.parent, "../middle/link/tokens.json", first / "tokens.json"),
    }
    target, step, link = targets[hop]
    (middle / "link").symlink_to(target)
    Path(link).symlink_to(step)
    assert is_trusted(link)
    middle.chmod(0o777)
    with pytest.raises(BadOption, match=f"may write to {middle}"):
        read_trusted(str(link), "tokens")


@needs_root
def test_a_link_of_another_user_is_refused_in_a_directory_like_tmp(
    tokens: Path, tmp_path: Path
) -> None:
    common = tmp_path / "common"
    common.mkdir()
    common.chmod(0o1777)
    link = common / "tokens.json"
    link.symlink_to(tokens)
    assert is_trusted(link)
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    assert not is_trusted(link)


def test_a_secret_that_kubernetes_mounts_is_trusted(tmp_path: Path) -> None:
    """The mount is a sticky directory for all, with links to a directory that is replaced whole."""
    mount = tmp_path / "secrets"
    version = mount / "..2026_01_31"
    version.mkdir(parents=True)
    (version / "tokens.json").write_text("[]")
    (version / "tokens.json").chmod(0o440)
    version.chmod(0o755)
    mount.chmod(0o1777)
    (mount / "..data").symlink_to(version.name)
    (mount / "tokens.json").symlink_to("..data/tokens.json")
    assert is_trusted(mount / "tokens.json")


def test_dots_are_resolved_as_the_kernel_does(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`link/..` is the parent of the link's target, not the directory of the link."""
    (tmp_path / "link").symlink_to(tokens.parent)
    monkeypatch.chdir(tmp_path)
    assert is_trusted("link/../ffq/tokens.json") and is_trusted("./etc//ffq/tokens.json")
    assert is_trusted(f"{tmp_path}/etc/../etc/ffq/./tokens.json")


def test_links_that_lead_nowhere_or_round_in_circles_are_errors(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "nowhere").symlink_to("none/tokens.json")
    for name in ("circle", "nowhere", "circle/tokens.json", "none"):
        with pytest.raises(BadOption, match="cannot read"):
            read_trusted(str(tmp_path / name), "tokens")


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that declares the group of the test's files and the system's accounts."""

    def declare(group: str, members: list[str], users: dict[str, tuple[int, int]]) -> None:
        gid = os.getegid()
        entries = {
            name: SimpleNamespace(pw_name=name, pw_uid=uid, pw_gid=g)
            for name, (uid, g) in users.items()
        }
        monkeypatch.setattr(
            grp, "getgrgid", lambda _: SimpleNamespace(gr_name=group, gr_mem=members, gr_gid=gid)
        )
        monkeypatch.setattr(pwd, "getpwnam", lambda name: entries[name])
        monkeypatch.setattr(pwd, "getpwall", lambda: list(entries.values()))

    return declare


@pytest.mark.parametrize(
    ("group", "members", "others", "trusted"),
    [
        ("me", [], {}, True),
        ("me", ["me"], {}, True),
        ("me", ["ada"], {"ada": (STRANGER, 1)}, False),
        ("me", [], {"ada": (STRANGER, None)}, False),
        ("staff", [], {}, False),
        ("ada", [], {"ada": (STRANGER, None)}, False),
    ],
)
def test_a_directory_may_be_writable_for_a_group_of_this_account_alone(
    tokens: Path,
    accounts: Callable[..., None],
    group: str,
    members: list[str],
    others: dict[str, tuple[int, int | None]],
    trusted: bool,
) -> None:
    """Many systems give every user a private group and let it write to new directories."""
    gid = os.getegid()
    users = {name: (uid, gid if g is None else g) for name, (uid, g) in others.items()}
    accounts(group, members, {"me": (os.geteuid(), gid), **users})
    os.chown(tokens.parent, -1, gid)
    tokens.parent.chmod(0o775)
    assert is_trusted(tokens) is trusted


def test_a_group_without_a_name_is_not_trusted(
    tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grp, "getgrgid", {}.__getitem__)
    tokens.parent.chmod(0o775)
    assert not is_trusted(tokens)


@pytest.mark.skipif(not hasattr(os, "listxattr"), reason="needs the attributes of Linux")
def test_an_access_list_makes_a_private_group_untrusted(
    tokens: Path, accounts: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an access list the mode of the group also stands for other users."""
    accounts("me", [], {"me": (os.geteuid(), os.getegid())})
    tokens.parent.chmod(0o775)
    assert is_trusted(tokens)
    monkeypatch.setattr(os, "listxattr", lambda _: ["system.posix_acl_access"])
    assert not is_trusted(tokens)


def test_a_file_may_come_from_a_pipe_or_from_standard_input(tokens: Path) -> None:
    """A shell passes `<(command)` as a path below /dev/fd."""
    code = (
        "import sys\nfrom ffq_spark.service.auth.trusted_files import read_trusted\n"
        "sys.stdout.buffer.write(read_trusted(sys.argv[1], 'tokens'))"
    )

    def read(path: str, **source: object) -> bytes:
        command = [sys.executable, "-c", code, path]
        return subprocess.run(command, capture_output=True, check=True, **source).stdout  # type: ignore[call-overload, no-any-return]

    assert read("/dev/stdin", input=b"[]") == b"[]"
    with tokens.open("rb") as file:
        assert read("/dev/stdin", stdin=file) == b"[]"
