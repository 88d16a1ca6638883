"""Snapshots of a run: a directory each, every byte hashed, written so that a kill at any instant leaves a good one.

    RUN/snapshots/  step_000010000/  best/  LATEST  .tmp-segments/ (sealed since the last snapshot)
    a snapshot:     agent.safetensors  state.safetensors  state.json  <ring>/segment_000012.bin ...  manifest.json

`Store` is the door. From it down: `segments` (rows of a ring as files), `tree` (state as JSON and tensors), `manifest`
(hashes, and the proof of them), `atomic` (files that are whole or absent), `tensors`.

Every protection is one function, which `tests/faults/sabotage.py` switches off to see that its tests turn red:
`manifest.check_hash`, `manifest.check_files` and `.check_folder`, `atomic.sync`, `atomic.rename`.
"""
