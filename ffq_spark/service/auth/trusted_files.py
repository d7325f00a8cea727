"""Read a server's credential files, and refuse files that other users could change or replace."""

from __future__ import annotations

import errno
import os
import re
import stat

from ffq_spark.errors import BadOption

_GROUP_OR_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0
_MOST_LINKS = 40
_ACCESS_LIST = "system.posix_acl_access"
# The open files of a process: links that lead to pipes, which have no path.
_OPEN_FILES = re.compile(r"/proc/[0-9]+/fd")


def read_trusted(path: str, option: str) -> bytes:
    """Read a file; raise BadOption if a user other than root may write or replace it.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     os.chmod(file.name, 0o666)
    ...     read_trusted(file.name, "tokens")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ffq_spark.errors.BadOption: [FFQ_BAD_OPTION] other users may write to ...: review its content, \
then run `chmod go-w` on it (option tokens). Correct the value; docs/options.md describes every \
option
    """
    try:
        # Nobody else can change where the path leads, so that the check holds for what is opened.
        with open(resolve_trusted(path, option), "rb") as file:
            status = os.fstat(file.fileno())
            if os.name == "posix":
                _refuse_foreign(path, status, option)
                _refuse_writable(path, bool(status.st_mode & _GROUP_OR_OTHERS_WRITE), option)
            return file.read()
    except OSError as error:
        raise BadOption(
            f"cannot read {path}: {error.strerror or type(error).__name__}", option=option
        ) from None


def resolve_trusted(path: str, option: str) -> str:
    """Follow all links of a path; raise BadOption if another user could make it lead elsewhere.

    Every directory and link on the way, also those behind a link, must belong to root or to this
    account, and only they may write to it. The file itself need not exist.
    """
    if os.name != "posix":
        return os.path.realpath(path)
    place, names, links = "/", _names(os.path.join(os.getcwd(), path)), 0
    _refuse_replaceable(place, os.lstat(place), option)
    while names:
        name = names.pop()
        if name == "..":
            place = os.path.dirname(place)
            continue
        step = os.path.join(place, name)
        try:
            status = os.lstat(step)
        except FileNotFoundError:
            return os.path.join(step, *reversed(names))
        _refuse_foreign(step, status, option)
        if stat.S_ISLNK(status.st_mode):
            if _OPEN_FILES.fullmatch(place) and stat.S_ISFIFO(os.stat(step).st_mode):
                return step
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = os.readlink(step)
            names += _names(target)
            place = "/" if target.startswith("/") else place
            continue
        if stat.S_ISDIR(status.st_mode):
            _refuse_replaceable(step, status, option)
        place = step
    return place


def _names(path: str) -> list[str]:
    """Return the names in a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _refuse_replaceable(directory: str, status: os.stat_result, option: str) -> None:
    """Raise BadOption if other users may replace files in a directory."""
    _refuse_foreign(directory, status, option)
    mode = status.st_mode
    # In a sticky directory, such as /tmp, users can only replace files of their own.
    if not mode & stat.S_ISVTX:
        is_shared = bool(mode & stat.S_IWGRP) and not _is_private(directory, status.st_gid)
        _refuse_writable(directory, bool(mode & stat.S_IWOTH) or is_shared, option)


def _is_private(directory: str, gid: int) -> bool:
    """Return whether a directory's group is the private group of root or of this account.

    Many systems give every user a group of the same name, without other members, and let it write
    to new directories.
    """
    # Only POSIX systems have these modules.
    import grp
    import pwd

    # With an access list, the mode of the group is also that of other users and groups.
    if hasattr(os, "listxattr") and _ACCESS_LIST in _attributes(directory):
        return False
    try:
        group = grp.getgrgid(gid)
        account = pwd.getpwnam(group.gr_name)
    except KeyError:
        return False
    members = {*group.gr_mem, *(user.pw_name for user in pwd.getpwall() if user.pw_gid == gid)}
    return _is_trusted(account.pw_uid) and account.pw_gid == gid and members <= {account.pw_name}


def _attributes(directory: str) -> list[str]:
    try:
        return os.listxattr(directory)
    except OSError:
        # The file system has no such attributes.
        return []


def _is_trusted(uid: int) -> bool:
    return uid in (_ROOT, os.geteuid())


def _refuse_foreign(path: str, status: os.stat_result, option: str) -> None:
    if not _is_trusted(status.st_uid):
        raise BadOption(
            f"{path} belongs to the user {status.st_uid}, who may change it: review its content, "
            f"then run `chown` so that it belongs to root or to the user {os.geteuid()} of this "
            "process",
            option=option,
        )


def _refuse_writable(path: str, is_writable: bool, option: str) -> None:
    if is_writable:
        raise BadOption(
            f"other users may write to {path}: review its content, then run `chmod go-w` on it",
            option=option,
        )
