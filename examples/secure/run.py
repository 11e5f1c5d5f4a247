"""A market-data bus with keys and permissions.

The programs do not mention keys: OZ_SECURITY names a file with the key of each.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
USERS = ("feed", "viewer", "tap")


def oz(*words):
    return subprocess.run(
        [sys.executable, "-m", "oz", *words], check=True, capture_output=True, text=True
    ).stdout


with tempfile.TemporaryDirectory() as place:
    keys, rights = f"{place}/keys", Path(place, "permissions.toml")
    for user in USERS:
        oz("keys", "new", user, "--key-directory", keys)
        # The three programs trust each other. Between hosts, `oz keys trust` fills a directory of trusted keys.
        own = f'key = "keys/{user}.key_secret"\ntrusted = "keys"\npermissions = "permissions.toml"\n'
        Path(place, f"{user}.toml").write_text(f"[security]\n{own}")
    shown = oz("keys", "show", *USERS, "--key-directory", keys).splitlines()
    public = {line.split()[2]: line.split()[0] for line in shown[1:]}
    rights.write_text((HERE / "permissions.toml").read_text().format(**public))

    def start(user):
        environment = {**os.environ, "OZ_SECURITY": f"{place}/{user}.toml", "OZ_BUS": "secure"}
        return subprocess.Popen([sys.executable, HERE / f"{user}.py"], env=environment)

    feed = start("feed")
    try:
        codes = [start(user).wait() for user in ("tap", "viewer")]
        feed.terminate()
        codes.append(feed.wait(timeout=60))
    finally:
        feed.kill()
sys.exit(any(codes))
