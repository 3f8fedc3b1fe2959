"""Commands that have commands: each file is a group of the command line. Only Typer is imported before they run."""
