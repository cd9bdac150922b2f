"""`python -m runguard`."""

from runguard.cli import main

if __name__ == "__main__":
    main()
