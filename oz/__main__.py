"""`python -m oz`: the command `oz`, if it is not on the path."""

from oz.command import main

if __name__ == "__main__":
    main(prog_name="oz")
