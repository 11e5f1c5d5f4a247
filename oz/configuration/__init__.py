"""Settings of a node, from arguments, `OZ_*` variables, a TOML file and defaults.

The first of these sources that has a value is used. `resolve` returns the value and the source of each setting.
docs/configuration.md is the page for users.
"""

from oz.configuration.directory import private_directory
from oz.configuration.files import ConfigurationFile
from oz.configuration.resolution import (
    Configuration,
    ConfigurationSurvey,
    resolve,
    resolve_limits,
    security_source,
    survey,
)
from oz.configuration.settings import DEFINITIONS, Definition, Setting

__all__ = [
    "DEFINITIONS",
    "Configuration",
    "ConfigurationFile",
    "ConfigurationSurvey",
    "Definition",
    "Setting",
    "private_directory",
    "resolve",
    "resolve_limits",
    "security_source",
    "survey",
]
