"""Requests to the HTTP servers of commands."""

import urllib.error
import urllib.request
from contextlib import suppress

from support.waiting import DEADLINE, until


def fetch(url):
    """Wait until a server accepts connections at a URL or a request; return the status and the text."""

    def answer():
        with suppress(ConnectionError, urllib.error.URLError):
            try:
                response = urllib.request.urlopen(url, timeout=DEADLINE)
            except urllib.error.HTTPError as error:
                response = error
            with response:
                return response.status, response.read().decode()

    return until(answer)
