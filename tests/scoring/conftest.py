"""Small tasks for the tests of this folder."""

from tests.small_tasks import make_task

__all__ = ["make_task"]
