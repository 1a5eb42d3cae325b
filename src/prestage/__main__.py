"""The command `prestage`, which is `python -m prestage` too."""

import sys

EXIT_INTERRUPTED = 130


def main() -> int:
    """Run the command line and return the exit status."""
    try:
        # What it takes to import is long enough for somebody to think better of it.
        from prestage import cli

        return cli.main()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
