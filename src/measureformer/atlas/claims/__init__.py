"""Claims: a folder for each chapter and a file for each claim."""
