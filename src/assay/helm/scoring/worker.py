"""The worker process that scores batches of answers: ``python -m assay.helm.scoring.worker``.

Messages on standard input and output are msgpack, each preceded by its length in four bytes. The first is a
`ScorerSpec`, each further one a batch of answers; each reply is the batch's scores.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from assay.helm.scoring.scorer import AnswerTexts, Score, Scorer

if TYPE_CHECKING:
    from collections.abc import Sequence

_LENGTH = struct.Struct(">I")


class ScorerSpec(msgspec.Struct, frozen=True):
    """The settings of a worker's scorer."""

    names: tuple[str, ...]
    num_outputs: int


def send(stream: BinaryIO, message: object) -> None:
    """Write one message."""
    body = msgspec.msgpack.encode(message)
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def receive(stream: BinaryIO) -> bytes | None:
    """Read one message; ``None`` at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    body = stream.read(size)
    return body if len(body) == size else None


def decode_scores(body: bytes) -> list[list[Score]]:
    """The scores in a reply."""
    return msgspec.msgpack.decode(body, type=list[list[Score]])


def score_batch(scorer: Scorer, answers: Sequence[AnswerTexts]) -> list[list[Score]]:
    """Score a batch of answers."""
    return [scorer.score(answer) for answer in answers]


def main() -> None:
    """Serve until standard input ends."""
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a library that prints must not break the messages
    first = receive(requests)
    if first is None:
        return
    spec = msgspec.msgpack.decode(first, type=ScorerSpec)
    scorer = Scorer(spec.names, spec.num_outputs)
    while (body := receive(requests)) is not None:
        send(replies, score_batch(scorer, msgspec.msgpack.decode(body, type=list[AnswerTexts])))


if __name__ == "__main__":
    main()
