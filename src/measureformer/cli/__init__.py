"""The command line: a file for each command. Only Typer is imported before a command runs."""
