"""lm-eval's tasks: found without its start-up cost, loaded with data from the disk."""
