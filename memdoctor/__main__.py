"""``python -m memdoctor``: the same as the command ``memdoctor``."""

from memdoctor.cli import main

if __name__ == "__main__":
    main()
