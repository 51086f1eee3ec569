"""lm-eval's task library as a source of samples: tasks are found, loaded with data from disk, and turned into requests.

Scores belong in ``scoring``; whatever reaches into lm-eval's internals belongs in ``tasks.patches``. It may import
``models``, ``sandbox`` and what stands below them.
"""

from assay.tasks.patches.deferred_imports import defer_imports

defer_imports()
