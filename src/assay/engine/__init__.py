"""One queue over all tasks, without barriers: what is asked next, by how many workers, and who gets the answers.

``schedule`` decides whose sample leaves next, ``queue`` has it asked and journaled, ``workers`` keeps as many workers
as the concurrency allows, ``completion_batcher`` hands complete samples on, some at a time. Nothing here knows what a
task or a server is.

It may import ``models`` and what stands below it.
"""

from assay.engine.completion_batcher import TOGETHER
from assay.engine.queue import Model, Record, ask_all

__all__ = ["TOGETHER", "Model", "Record", "ask_all"]
