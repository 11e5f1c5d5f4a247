"""Every public member is on the pages of the API."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.documents
def test_the_pages_of_the_api_have_every_public_member_as_the_code_has_it():
    command = [sys.executable, "tools/api_reference.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_reference_names_what_was_missing():
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    told = page.partition(".. autoclass:: Message()")[2].partition(".. autoclass::")[0]
    assert {"subject_bytes", "subscriptions", "reply"} <= set(told.replace(",", " ").split())
    told = page.partition(".. autoclass:: ReceivedSubscription()")[2].partition(".. autoclass::")[0]
    assert {"receive", "drain", "unsubscribe"} <= set(told.replace(",", " ").split())
