"""`python -m measureformer` is the command `measureformer`."""

from measureformer.cli.app import main

if __name__ == "__main__":
    main()
