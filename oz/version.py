"""The version of oz: the one place where it stands; setup.cfg reads it from here."""

VERSION = "0.1.0"
