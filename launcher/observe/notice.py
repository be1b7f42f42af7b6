"""Posts a notice about a run to a webhook: JSON with `text`, as Slack, Mattermost and Discord's Slack mode read it."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from launcher.records import dataclass

_SECONDS = 10.0
SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One notice.

    Attributes:
        text: a sentence for people.
        run: the same as data, for programs.
    """

    text: str
    run: Mapping[str, Any]


def is_url(text: str) -> bool:
    """Return whether a notice can be posted there."""
    try:
        parts = urlsplit(text)
        return parts.scheme in SCHEMES and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def send(url: str, notice: Notice) -> str:
    """Post a notice; return why it was not received, without the URL, which may contain a secret; else empty."""
    body = json.dumps({"text": notice.text, "run": dict(notice.run)}, ensure_ascii=False).encode()
    headers = {"Content-Type": "application/json"}
    try:
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")
        with urllib.request.urlopen(request, timeout=_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except OSError as error:
        return str(getattr(error, "reason", error))
    except (ValueError, http.client.HTTPException) as error:  # their messages quote the URL, or what the server sent
        return type(error).__name__
