"""Program of `python -m oz`: the command `oz`, for systems where the command is not in PATH."""

from oz.command import main

if __name__ == "__main__":
    main(prog_name="oz")
