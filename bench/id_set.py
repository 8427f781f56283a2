"""Read the id set of one transcript in a fresh process, and print what it took as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import perf_counter

from bench.processes import peak_memory, reset_peak_memory, resident_memory


def main() -> None:
    from sayagain_claude.transcripts.ids import message_ids

    path, pid = Path(sys.argv[1]), os.getpid()
    reset_peak_memory(pid)
    memory = resident_memory(pid)
    began = perf_counter()
    ids = message_ids(path)
    seconds = perf_counter() - began
    print(json.dumps({"seconds": seconds, "bytes": peak_memory(pid) - memory, "ids": len(ids)}))


if __name__ == "__main__":
    main()
