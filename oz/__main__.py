"""Entry point of `python -m oz`, which runs the command `oz` even if the command is not in PATH."""

from oz.command import main

if __name__ == "__main__":
    main(prog_name="oz")
