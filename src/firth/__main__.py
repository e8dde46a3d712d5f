"""`python -m firth` is the command line."""

from firth.cli.main import main

main()
