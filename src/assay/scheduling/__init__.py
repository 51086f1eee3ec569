"""One request queue for all tasks.

``schedule`` decides which task's sample comes next, ``queue`` sends its requests and journals the responses,
``workers`` keeps as many workers as the concurrency allows, ``completion_batcher`` passes complete samples on in
batches. Nothing here knows what a task or a server is.

It may import ``client`` and what stands below it.
"""

from assay.scheduling.completion_batcher import BATCH_SIZE
from assay.scheduling.queue import Model, Record, ask_all

__all__ = ["BATCH_SIZE", "Model", "Record", "ask_all"]
