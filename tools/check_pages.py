"""Check the built pages in headless Chromium: no sideways scrolling, and the search finds pages.

Usage: sphinx-build -b html docs HTML && python tools/check_pages.py HTML

A page of this program opens each page in a frame of 400 and of 1280 pixels. Without Chromium the program reports that,
and ends with 0. Code and tables may scroll in their own boxes.
"""

import html
import json
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WIDTHS = (400, 1280)  # pixels
TIMEOUT = 300.0  # seconds of the browser

HARNESS = """<!doctype html><body><script>
const pages = %s, widths = %s, found = [];
const sleep = time => new Promise(done => setTimeout(done, time));
async function open(page, width) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width: ${width}px; height: 900px; border: 0`;
  document.body.append(frame);
  await new Promise(done => { frame.onload = done; frame.src = page; });
  return frame;
}
function scrolls(document) {
  const view = document.defaultView, root = document.documentElement;
  const boxes = [...document.querySelectorAll(".page, .main, .content, article")];
  const scrolling = boxes.filter(box => ["auto", "scroll"].includes(view.getComputedStyle(box).overflowX));
  return [root, ...scrolling].find(box => box.scrollWidth > box.clientWidth + 1);
}
function widest(document, width) {
  const nodes = [...document.querySelectorAll("article *")];
  const wide = nodes.find(node => node.getBoundingClientRect().right > width + 1);
  return wide ? wide.outerHTML.slice(0, 120) : "";
}
async function run() {
  for (const page of pages) for (const width of widths) {
    const frame = await open(page, width), inner = frame.contentDocument, box = scrolls(inner);
    if (box) found.push(`${page}: ${box.scrollWidth} px in ${width} px: ${widest(inner, width)}`);
    frame.remove();
  }
  const frame = await open("/search.html?q=subscribe", 1280);
  let results = [];
  for (let turn = 0; turn < 100 && !results.length; turn++) {
    await sleep(100);
    results = frame.contentDocument.querySelectorAll("#search-results li");
  }
  if (!results.length) found.push("search.html: no page has the word subscribe");
  document.body.innerHTML = "<pre>" + JSON.stringify(found).replaceAll("&", "&amp;").replaceAll("<", "&lt;") + "</pre>";
}
run();
</script></body>"""


class Pages(SimpleHTTPRequestHandler):
    """Files of the directory, and the page that opens them."""

    def do_GET(self) -> None:
        """Send a file."""
        if self.path != "/harness":
            super().do_GET()
            return
        root = Path(self.directory)
        pages = [
            f"/{path.relative_to(root)}"
            for path in sorted(root.rglob("*.html"))
            if "_static" not in path.parts
        ]
        body = (HARNESS % (json.dumps(pages), json.dumps(WIDTHS))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def faults_of(directory: str, browser: str) -> list[str]:
    """Return a line for each page that scrolls sideways, and for a search without results."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Pages, directory=directory))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [
        browser,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=600000",
        "--dump-dom",
    ]
    try:
        address = f"http://127.0.0.1:{server.server_port}/harness"
        ended = subprocess.run([*command, address], capture_output=True, text=True, timeout=TIMEOUT)
    finally:
        server.shutdown()
    written = re.search(r"<pre>(.*)</pre>", ended.stdout, re.DOTALL)
    if written is None:
        raise SystemExit(f"{browser} printed no result: {ended.stderr[-2000:]}")
    faults: list[str] = json.loads(html.unescape(written[1]))
    return faults


def main() -> None:
    """Check the pages of a directory."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print("pages: NOT CHECKED, there is no chromium")
        return
    if faults := faults_of(sys.argv[1], browser):
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
