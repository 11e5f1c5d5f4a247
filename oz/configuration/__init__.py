"""The settings of a node: from arguments, `OZ_*` variables, a TOML file and defaults, in this order.

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
