"""Keys for two programs: connections are encrypted, and a program without a trusted key is refused."""

import subprocess
import sys
import tempfile

import oz

with tempfile.TemporaryDirectory() as directory:

    def keys(*arguments: str) -> None:
        """Run `oz keys`; a shell does the same."""
        command = [sys.executable, "-m", "oz", "keys", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    for name in ("feed", "desk", "stranger"):
        keys("new", name, "--key-directory", f"{directory}/keys")
    for name in ("feed", "desk"):
        keys("trust", f"{directory}/keys/{name}.key", "--in", f"{directory}/trusted")

    def security(name: str) -> oz.Security:
        return oz.Security(f"{directory}/keys/{name}.key_secret", trusted=f"{directory}/trusted")

    with oz.Publisher("tcp://127.0.0.1:*", security=security("feed")) as feed:
        with oz.Subscriber(feed.endpoint, filtering="publisher", security=security("desk")) as desk:
            desk.subscribe("md.>")
            desk.wait_ready()
            feed.publish("md.eu", b"encrypted")
            print("desk:", desk.receive(timeout=5).payload)
        try:
            with oz.Subscriber(feed.endpoint, security=security("stranger")) as stranger:
                stranger.subscribe("md.>")
                stranger.wait_ready(timeout=5)
        except oz.PermissionDenied:
            print("stranger: refused")
