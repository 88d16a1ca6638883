"""Snapshots of a run: a directory each, every byte hashed, written so that a kill at any instant leaves a good one.

    RUN/snapshots/  step_000010000/  best/  LATEST  .tmp-segments/ (sealed since the last snapshot)
    a snapshot:     agent.safetensors  state.safetensors  state.json  <ring>/segment_000012.bin ...  manifest.json

`Store` is the entry point. Below it: `segments` (rows of a ring as files), `tree` (state as JSON and tensors),
`manifest` (hashes, and their check), `atomic` (files that are complete or absent), `tensors`.

Every protection is one function; `tests/faults/sabotage.py` switches it off and checks that its tests then fail:
`manifest.check_hash`, `manifest.check_files` and `.check_folder`, `atomic.sync`, `atomic.rename`.
"""
