"""Recognize credentials in roots and other URLs, also in those with the usual mistakes.

Users leave out a colon or a slash, and libraries merge slashes. Such a root still shows its
credentials in plans, records and logs, so it is refused like a correct URL with a login.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from ffq_spark.store.redaction import is_secret_name

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
_BUCKETS = frozenset({"s3", "s3a", "s3n", "gs", "gcs"})
_WEB = frozenset({"http", "https"})
_PARAMETER = re.compile(r"[?&;#]([^=?&;#/]+)=")
_SIGNATURE = re.compile(r"sig|x-(amz|goog)-\w+", re.IGNORECASE)

_KNOWN = r"(?:s3[an]?|gs|gcs|abfss?|wasbs?|adl|az|oss|https?|s?ftp|hdfs)"
_WITHOUT_COLON = re.compile(rf"({_KNOWN})(//.*)", re.IGNORECASE | re.DOTALL)
# A local path that users can only mean as a URL: one without its colon, with a login before a
# host; a login alone; or a URL that was taken for a relative path, below some directory.
_PATH_WITH_LOGIN = re.compile(
    rf"\A{_KNOWN}/[^/]*:[^/]*@"
    r"|\A[a-z][\w+.-]*//+[^/]*:.*@"
    r"|\A[a-z]\w*:[^/]*@"
    rf"|(?:\A|/){_KNOWN}:/+[^/]*(?::(?!\d+/).*)?@",
    re.IGNORECASE | re.DOTALL,
)


def holds_credentials(root: str) -> bool:
    """Return whether a root holds a login, a token or a signature.

    An absolute path may contain any character. A relative path may do so if it begins with `./`.

    >>> [holds_credentials(f"{s}KEY:SECRET@b/x") for s in ("s3://", "s3:/", "s3//", "/", "./")]
    [True, True, True, False, False]
    """
    if not _URL.fullmatch(root):
        return _path_holds_credentials(root)
    return any(_link_holds_credentials(url) for url in root.split("::"))


def address_holds_credentials(url: str) -> bool:
    """Return whether the address of a service, in which every @ follows a login, holds credentials.

    >>> [address_holds_credentials(f"grpc://{rest}") for rest in ("h:1", "u%40h:1", "h?token=a")]
    [False, True, True]
    """
    return any("@" in form for form in _decoded(url)) or _holds_secret_parameter(url)


def _holds_secret_parameter(url: str) -> bool:
    """Return whether a URL has a parameter such as `?access_token=…` or `;sig=…`."""
    names = [name for form in _decoded(url) for name in _PARAMETER.findall(form)]
    return any(is_secret_name(name) or _SIGNATURE.fullmatch(name) for name in names)


def _link_holds_credentials(url: str) -> bool:
    """Check one URL of a chain such as `simplecache::s3://bucket/x`."""
    if not _URL.fullmatch(url):
        return _path_holds_credentials(url)
    return any(_url_holds_login(form) for form in _decoded(url)) or (
        not url.lower().startswith("file:") and _holds_secret_parameter(url)
    )


def _path_holds_credentials(path: str) -> bool:
    if match := _WITHOUT_COLON.fullmatch(path):
        return _link_holds_credentials(f"{match[1]}:{match[2]}")
    return bool(_PATH_WITH_LOGIN.search(path))


def _url_holds_login(url: str) -> bool:
    match = _URL.fullmatch(url)
    if match is None:
        return False
    scheme, rest = match[1].lower(), match[2]
    place = rest.lstrip("/")
    login, at, host = place.split("/", 1)[0].rpartition("@")
    if scheme == "file":
        # Only two slashes are followed by a host; all other forms are paths.
        has_host = rest.startswith("//") and not rest.startswith("///")
        return bool(has_host and at and ":" in login) or bool(_PATH_WITH_LOGIN.search(rest))
    if at and place == rest:
        # A login without a URL, as in `KEY:SECRET@bucket`.
        return True
    # `container@account` and `user@host` hold no secret. A bucket's name cannot have an @, and on
    # the web a user without a password is a token.
    if at and (":" in login or scheme in _BUCKETS | _WEB):
        return True
    # If a secret contains a slash, the text before it looks like a host with an invalid port.
    name, colon, port = host.partition(":")
    is_cut = bool(colon) and name != "arn" and not port.isdecimal()
    return is_cut and scheme in _BUCKETS | _WEB


def _decoded(url: str) -> Iterator[str]:
    """Yield a URL as it is, and after each round of percent-decoding that changes it.

    >>> list(_decoded("a%2540b"))
    ['a%2540b', 'a%40b', 'a@b']
    """
    while True:
        yield url
        decoded = unquote(url)
        if decoded == url:
            return
        url = decoded
