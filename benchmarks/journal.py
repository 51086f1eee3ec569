"""What the journal costs: appending, resuming and checking, at the size of a very large run.

    python benchmarks/journal.py --records 1000000 --folder /var/tmp/journal

Each phase runs in a process of its own, so that its peak memory is its own. Peak memory is over what the imports take.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shutil
import sys
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from assay.journal import Journal, ResponseRecord, check, find_journals, records
from assay.types import Answer, Request

if TYPE_CHECKING:
    from collections.abc import Callable

FINGERPRINT = "f0" * 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--text-bytes", type=int, default=1650, help="length of an answer's text")
    parser.add_argument("--folder", type=Path, required=True, help="scratch folder; made, and removed at the end")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True)
    try:
        compare_encodings(arguments.text_bytes)
        for phase in (append, resume, iterate, verify):
            in_own_process(phase, Size(arguments.folder, arguments.records, arguments.text_bytes))
    finally:
        shutil.rmtree(arguments.folder)


class Size(NamedTuple):
    """What is measured."""

    folder: Path
    records: int
    text_bytes: int


def in_own_process(phase: Callable[[Size], None], size: Size) -> None:
    process = multiprocessing.get_context("spawn").Process(target=phase, args=(size,))
    process.start()
    process.join()
    if process.exitcode != 0:
        sys.exit(f"{phase.__name__} failed")


def append(size: Size) -> None:
    before = peak_mib()
    block = max(1, size.records // 10)
    micros = []
    with Journal.open(size.folder, fingerprint=FINGERPRINT, specification={}) as journal:
        began = time.perf_counter()
        for number, (request, answer) in enumerate(samples(size.records, size.text_bytes), start=1):
            journal.append(request, answer)
            if number % block == 0:
                micros.append((time.perf_counter() - began) / block * 1e6)
                began = time.perf_counter()
        written = journal.path.stat().st_size
    print(f"append   {size.records} records, {written / 2**20:.0f} MiB, {written / size.records:.0f} bytes each")
    print(f"         us a record, by tenth of the run (making it included): {' '.join(f'{x:.0f}' for x in micros)}")
    print(f"         peak memory +{peak_mib() - before:.0f} MiB")


def resume(size: Size) -> None:
    before = peak_mib()
    began = time.perf_counter()
    with Journal.open(size.folder, fingerprint=FINGERPRINT, specification={}) as journal:
        print(f"resume   open {time.perf_counter() - began:.1f} s, {journal.answers} answers found")
        began = time.perf_counter()
        found = sum(journal.lookup(request.key) is not None for request in requests(size.records))
        print(f"         look up every key {time.perf_counter() - began:.1f} s, {found} found")
    print(f"         peak memory +{peak_mib() - before:.0f} MiB")


def iterate(size: Size) -> None:
    before = peak_mib()
    began = time.perf_counter()
    number = sum(1 for _ in records(find_journals(size.folder)[0]))
    print(f"records  {time.perf_counter() - began:.1f} s, {number} records, peak memory +{peak_mib() - before:.0f} MiB")


def verify(size: Size) -> None:
    before = peak_mib()
    began = time.perf_counter()
    report = check(find_journals(size.folder)[0])
    taken = time.perf_counter() - began
    print(f"check    {taken:.1f} s, {report.answers} answers, peak memory +{peak_mib() - before:.0f} MiB")


def compare_encodings(text_bytes: int) -> None:
    written = [
        ResponseRecord(
            task=request.task,
            doc_id=request.doc_id,
            index=0,
            repeat=0,
            key=request.key,
            response=answer,
            time=time.time(),
        )
        for request, answer in samples(20_000, text_bytes)
    ]
    for name, codec in (("JSON", msgspec.json), ("msgpack", msgspec.msgpack)):
        encoder, decoder = codec.Encoder(), codec.Decoder(ResponseRecord)
        began = time.perf_counter()
        payloads = [encoder.encode(record) for record in written]
        encoded = time.perf_counter()
        for payload in payloads:
            decoder.decode(payload)
        decoded = time.perf_counter()
        for payload in payloads:
            zlib.crc32(payload)
        summed = time.perf_counter()
        micros = [1e6 / len(payloads) * x for x in (encoded - began, decoded - encoded, summed - decoded)]
        print(f"{name:8} us a record: encode {micros[0]:.1f}, decode {micros[1]:.1f}, crc32 {micros[2]:.1f}")


def samples(count: int, text_bytes: int) -> zip[tuple[Request, Answer]]:
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(1000)]
    texts = [" ".join(rng.choices(words, k=text_bytes // 4)).replace(" a", "\n")[:text_bytes] for _ in range(100)]
    answers = (
        Answer(text=texts[i % 100], finish_reason="stop", prompt_tokens=900, completion_tokens=i % 500, latency=1.25)
        for i in range(count)
    )
    return zip(requests(count), answers, strict=True)


def requests(count: int) -> map[Request]:
    return map(_request, range(count))


def _request(number: int) -> Request:
    # An odd multiplier permutes the residues, so keys are distinct and in no order, as hashes are.
    key = f"{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}"
    return Request("mmlu_pro_math", number, 0, 0, "generate_until", b"{}", key)


def peak_mib() -> float:
    """This process's peak resident memory; unlike ru_maxrss, not its parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024


if __name__ == "__main__":
    main()
