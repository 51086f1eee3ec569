"""How often triage names the right cause: faults planted in runs of known tasks, and healthy runs beside them."""
