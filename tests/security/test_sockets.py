"""Limits as an option of nodes."""

from __future__ import annotations

import pytest

import oz


@pytest.mark.parametrize("kind", [oz.Node, oz.asyncio.Node])
def test_what_are_no_limits_is_refused(kind):
    with pytest.raises(TypeError, match=r"^limits is oz\.Limits\(…\), not 5$"):
        kind(limits=5)
