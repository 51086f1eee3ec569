"""Gates: several checks from one TOML file, on one model or more.

``policy`` reads the file, ``run`` runs it, ``explain`` forecasts what it can detect, and ``calibrate`` measures how
much two runs of one server differ. The package may import ``evaluation`` and what stands below it.
"""
