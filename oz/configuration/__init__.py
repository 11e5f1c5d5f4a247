"""What a node is told: arguments, then `OZ_*` environment variables, then a TOML file, then defaults.

`resolve` puts them together and knows where each value came from; docs/configuration.md is for users.
"""

from oz.configuration.directory import private_directory
from oz.configuration.files import Candidate
from oz.configuration.resolution import Configuration, Survey, resolve, survey
from oz.configuration.settings import DEFINITIONS, Definition, Setting

__all__ = [
    "DEFINITIONS",
    "Candidate",
    "Configuration",
    "Definition",
    "Setting",
    "Survey",
    "private_directory",
    "resolve",
    "survey",
]
