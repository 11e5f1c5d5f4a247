"""The page of `oz explorer` in headless Chromium, at 400 and 1280 pixels.

`OZ_PICTURES=docs/pictures pytest -m documents tests/explorer/test_page.py` makes the pictures of the documentation.
"""

import os
import re
import shutil
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="without the extra explorer")
playwright = pytest.importorskip("playwright.sync_api", reason="without Playwright's client")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="without axe-core")

from oz.explorer.server import Server  # noqa: E402
from oz.explorer.view import BusView  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
TIMEOUT = 60_000  # milliseconds of each wait
WIDTHS = (400, 1280)

pytestmark = [
    pytest.mark.documents,
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="without Chromium"),
]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as client:
        launched = client.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture
def opened(scene, browser):
    """Function that opens the page; faults of its script and of the CSP fail the test."""
    view = BusView(scene.explorer, [">"])
    scene.wait_ready()
    faults, contexts = [], []
    with closing(Server(view, "127.0.0.1:0", publish=scene.explorer.publish)) as server:

        def open_page(width):
            context = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce")
            contexts.append(context)
            page = context.new_page()
            page.set_default_timeout(TIMEOUT)
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
            page.goto(server.url)
            return page

        open_page.view = view
        yield open_page
        for context in contexts:
            context.close()
    assert not faults


def expect(found):
    return playwright.expect(found)


def fill(scene, page):
    """Publish, and open the branches of `md` and `md.fx`."""
    scene.publish()
    for name in ("md", "fx"):
        page.get_by_role("button", name=f"Entries below {name}", exact=True).click()
    expect(page.get_by_role("button", name="EURUSD")).to_be_visible(timeout=TIMEOUT)


def test_tree_payload_filter_and_graph(scene, opened):
    page = opened(1280)
    fill(scene, page)
    page.get_by_role("button", name="EURUSD").click()
    expect(page.locator("#payload")).to_contain_text('"bid": 1.0871', timeout=TIMEOUT)
    expect(page.locator("#message-about")).to_contain_text("as msgpack")
    page.get_by_label("Show as").select_option("hex")
    expect(page.locator("#payload")).to_contain_text(re.compile("^0000  83 "), timeout=TIMEOUT)
    page.get_by_label("Pattern").fill("regex:(")
    expect(page.locator("#pattern-error")).to_contain_text("regex", timeout=TIMEOUT)
    page.get_by_label("Pattern").fill("redis:md.*USD")
    expect(page.locator("#tree tbody tr")).to_have_count(2, timeout=TIMEOUT)
    expect(page.locator("#tree")).to_contain_text("md.fx.GBPUSD")
    expect(page.locator("#explained")).to_contain_text("md.")
    expect(page.locator("#explained")).to_contain_text("2 of 12 match")
    page.get_by_label("Pattern").fill("")
    expect(page.get_by_role("button", name="ACME")).to_have_count(0)
    expect(page.get_by_role("button", name="job", exact=True)).to_be_visible(timeout=TIMEOUT)
    expect(page.locator("#graph circle")).to_have_count(4, timeout=TIMEOUT)
    expect(page.locator("#graph")).to_contain_text("dashboard")
    row = page.locator("#table-subscribers tr", has_text="dashboard")
    expect(row).to_contain_text("slow", timeout=TIMEOUT)
    expect(page.locator("#table-groups tr", has_text="workers")).to_contain_text("2", timeout=TIMEOUT)


def test_page_is_usable_with_too_many_subjects_and_counts_the_omitted(scene, opened):
    subjects = [
        f"load.s{one}.t{two}.k{three}" for one in range(100) for two in range(100) for three in range(10)
    ]
    page = opened(1280)
    # Without the bus, which would take a minute on a busy machine.
    with opened.view._lock:
        for subject in subjects:
            opened.view._table.put(subject, b"1", 1)
    scene.feed.publish("other", 1)
    expect(page.locator("#totals")).to_contain_text("100,000 subjects", timeout=TIMEOUT)
    expect(page.locator("#sampling")).to_contain_text(
        "The table is full at 100,000 subjects", timeout=TIMEOUT
    )
    page.get_by_role("button", name="Entries below load", exact=True).click()
    expect(page.locator("#tree")).to_contain_text("50 of 100", timeout=TIMEOUT)
    page.get_by_label("Pattern").fill("load.s7.*.k3")
    expect(page.locator("#explained")).to_contain_text("100 of 100,000 match", timeout=TIMEOUT)
    expect(page.locator("#explained")).not_to_contain_text("tested so far", timeout=TIMEOUT)


def test_keys_open_a_branch_and_publish(scene, opened):
    page = opened(400)
    # Text of the bus is not HTML.
    attack = "<img/src=x/onerror=alert(1)>"
    scene.feed.publish(attack, attack)
    page.get_by_role("button", name=attack).click()
    expect(page.locator("#payload")).to_contain_text(attack, timeout=TIMEOUT)
    assert page.locator("img").count() == 0
    scene.publish()
    toggle = page.get_by_role("button", name="Entries below md", exact=True)
    toggle.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Entries below fx", exact=True)).to_be_visible(timeout=TIMEOUT)
    expect(toggle).to_be_focused()
    inbox = scene.workers[0].subscribe("typed.>")
    scene.explorer.wait_ready(subscriber="typed.here", timeout=60)
    page.get_by_label("Subject", exact=True).fill("typed.here")
    page.locator("#publish-payload").fill('{"count": 3}')
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert inbox.receive(timeout=60).payload == {"count": 3}
    expect(page.locator("#published")).to_contain_text("Published to typed.here")


@pytest.mark.parametrize("width", WIDTHS)
def test_page_is_accessible_and_does_not_scroll_sideways(width, scene, opened, tmp_path):
    page = opened(width)
    fill(scene, page)
    page.get_by_role("button", name="EURUSD").click()
    expect(page.locator("#payload")).to_be_visible(timeout=TIMEOUT)
    expect(page.locator("#table-subscribers tr", has_text="dashboard")).to_contain_text(
        "slow", timeout=TIMEOUT
    )
    scene.publish()
    expect(page.locator("#totals")).to_contain_text("88 messages", timeout=TIMEOUT)
    pictures = Path(os.environ.get("OZ_PICTURES", tmp_path))
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.screenshot(path=pictures / f"explorer-{width}-{scheme}.png", full_page=width < 1000)
        violations = axe.Axe().run(page).response["violations"]
        assert [(found["id"], found["nodes"][0]["html"]) for found in violations] == []
    page.get_by_label("Pattern").fill("md.*.EURUSD")
    expect(page.locator("#explained")).to_contain_text("1 of 12 match", timeout=TIMEOUT)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert axe.Axe().run(page).response["violations"] == []
