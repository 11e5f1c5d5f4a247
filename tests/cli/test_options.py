"""Names of options: one name for one thing in all commands. And the completion of shells."""

import os
import shutil
import subprocess
import sys

import click
import pytest

from oz.cli import main


def options_of(command, path="oz"):
    """Return path and option of all commands."""
    ctx = click.Context(command, info_name=path)
    if isinstance(command, click.Group):
        names = command.list_commands(ctx)
        return [
            pair for name in names for pair in options_of(command.get_command(ctx, name), f"{path} {name}")
        ]
    return [(path, option) for option in command.params if isinstance(option, click.Option)]


OPTIONS = options_of(main)


def names_of(option):
    return [name for name in option.opts if name.startswith("--")], [
        name for name in option.opts if not name.startswith("--")
    ]


def test_an_option_has_one_long_name():
    assert {path: option.opts for path, option in OPTIONS if len(names_of(option)[0]) != 1} == {}


def test_a_short_name_is_of_one_option_in_all_commands():
    shorts, longs = {}, {}
    for _path, option in OPTIONS:
        [long], short = names_of(option)
        longs.setdefault(long, set()).update(short or [""])
        for name in short:
            shorts.setdefault(name, set()).add(long)
    assert {name: found for name, found in shorts.items() if len(found) > 1} == {}
    assert {name: found for name, found in longs.items() if len(found) > 1} == {}


def test_json_and_quiet_are_flags_in_all_commands():
    for path, option in OPTIONS:
        if option.name in ("as_json", "quiet") or "--json" in option.opts or "--quiet" in option.opts:
            assert option.is_flag, path


@pytest.fixture
def path(tmp_path):
    """PATH with the command `oz`."""
    command = tmp_path / "oz"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m oz "$@"\n')
    command.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


SCRIPTS = {
    "bash": 'eval "$(_OZ_COMPLETE=bash_source oz)"; COMP_WORDS=(oz nameserv); COMP_CWORD=1; _oz_completion oz; '
    'echo "${COMPREPLY[@]}"',
    # `compdef` of a shell with completion gets the function; `compadd` gets the completions.
    "zsh": "compdef() { :; }; compadd() { echo ${completions[@]} ${descriptions_with_colons[@]} $@; }; "
    '_describe() { echo "$@" "${completions_with_descriptions[@]}"; }; '
    'eval "$(_OZ_COMPLETE=zsh_source oz)"; words=(oz nameserv); CURRENT=2; _oz_completion',
    "fish": "_OZ_COMPLETE=fish_source oz | source; complete -C 'oz nameserv'",
}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_shell_completes_commands(shell, path):
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    ended = subprocess.run(
        [shell, "-c", SCRIPTS[shell]],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "nameserver" in ended.stdout.replace("oz nameserv ", ""), ended
