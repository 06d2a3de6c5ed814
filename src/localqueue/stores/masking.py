"""A store's URL as it may be shown: without the password in it."""

from __future__ import annotations

import re
from urllib.parse import unquote

MASK = "***"
SECRET_NAMES = r"pass|pwd|secret|token|credential|(?:api|access|account)_?key|signature|\bsig\b"
"""What the name of a setting has in it whose value is not shown, in any case."""

# To the last @: a password may hold a / or an @ that nobody escaped, and is better hidden with too
# much than shown with a rest. A path (sqlite:////a:b@c) starts with a slash and is none.
_USERINFO = re.compile(r"(?<=://)(?P<user>[^:/?#@\s]*):(?P<secret>\S+)@")
# In the query of a URL, or in a string of words as libpq takes it.
_SETTING = re.compile(
    rf"(?P<name>\b\w*(?:{SECRET_NAMES})\w*\s*=\s*)"
    r"(?P<secret>'(?:[^'\\]|\\.)*'|[^&\s'\"]+)",
    re.IGNORECASE,
)


def masked(text: str) -> str:
    """The URL, or a text with URLs in it, with ``***`` where a password was."""
    text = _USERINFO.sub(lambda found: f"{found['user']}:{MASK}@", text)
    return _SETTING.sub(lambda found: f"{found['name']}{MASK}", text)


def secrets_of(url: str) -> frozenset[str]:
    """The passwords in a URL: as they are written there, and as they are meant."""
    written = {
        found["secret"] for pattern in (_USERINFO, _SETTING) for found in pattern.finditer(url)
    }
    return frozenset(written | {unquote(secret) for secret in written}) - {MASK}
