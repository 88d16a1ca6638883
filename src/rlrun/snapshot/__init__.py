"""Saves and loads the snapshots of a run. Every byte is hashed, and a kill at any instant leaves a valid snapshot.

A snapshot is a folder:

    RUN/snapshots/  step_000010000/  best/  LATEST  .tmp-segments/ (segments written since the last snapshot)
    a snapshot:     agent.safetensors  state.safetensors  state.json  <ring>/segment_000012.bin ...  manifest.json

`Store` is the entry point. It uses `segments` (rows of a ring buffer as files), `tree` (state as JSON and tensors),
`manifest` (hashes and their verification), `atomic` (files that are complete or absent), and `tensors`.

Each protection is one function: `manifest.check_hash`, `manifest.check_files`, `manifest.check_folder`, `atomic.sync`,
`atomic.rename`. `tests/faults/sabotage.py` disables them one by one, and checks that the fault tests then fail.
"""
