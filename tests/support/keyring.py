"""Keys, trusted keys and permissions in a directory, for tests of security."""

import shutil

import oz
from oz.transport.certificates import new_key_pair, write_certificates


class Keyring:
    """Certificates, and a directory of trusted certificates.

    Attributes:
        permissions: the file of permissions; there once `permit` wrote it.
        trusted: the directory of trusted certificates.
    """

    def __init__(self, directory, *names):
        self._directory = directory / "keys"
        self._pairs = {}
        self.trusted = directory / "trusted"
        self.permissions = directory / "permissions.toml"
        self.trusted.mkdir(parents=True)
        for name in names:
            self.make(name)
            self.trust(name)

    def make(self, name):
        """Create a key pair that is not trusted yet."""
        self._pairs[name] = pair = new_key_pair()
        write_certificates(self._directory, name, pair)
        return pair

    def pair(self, name):
        return self._pairs[name]

    def public(self, name):
        return self._pairs[name].public

    def path(self, name):
        return self._directory / f"{name}.key_secret"

    def trust(self, name):
        shutil.copy(self._directory / f"{name}.key", self.trusted)

    def distrust(self, name):
        (self.trusted / f"{name}.key").unlink()

    def permit(self, default="deny", **rules):
        """Write what users may do: by name the lines below their keys."""
        lines = [f'default = "{default}"']
        for name, text in rules.items():
            lines += [f"[users.{name}]", f"key = '{self.public(name)}'", text]
        self.permissions.write_text("\n".join(lines) + "\n")

    def configure(self, name):
        """Write the security of a user into a file."""
        trusted, permissions = self.trusted, self.permissions
        text = (
            f'[security]\nkey = "{self.path(name)}"\ntrusted = "{trusted}"\npermissions = "{permissions}"\n'
        )
        (self._directory / f"{name}.toml").write_text(text)

    def file(self, name):
        """Return the path of the security file of a user."""
        return str(self._directory / f"{name}.toml")

    def security(self, name, *, permissions=False, **options):
        """Return the security of a user."""
        return oz.Security(
            self.path(name),
            trusted=self.trusted,
            permissions=self.permissions if permissions else None,
            **options,
        )

    def equip(self, socket, name, server=None):
        """Set the keys of a user on a plain socket, which connects to another user, or listens."""
        pair = self.pair(name)
        socket.curve_publickey, socket.curve_secretkey = pair.public.encode(), pair.secret.encode()
        if server is None:
            socket.curve_server = True
        else:
            socket.curve_serverkey = self.public(server).encode()
        return socket
