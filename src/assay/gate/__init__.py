"""Gates: several checks from one TOML file, on one model or more.

``policy`` reads the file, ``run`` runs it, ``explain`` says beforehand what it can see, ``calibrate`` measures how much
a server differs from itself. It may import ``evaluation`` and what stands below it.
"""
