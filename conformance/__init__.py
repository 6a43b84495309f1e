"""Does a PyTorch device do what PyTorch does on the CPU? Every op that PyTorch's own tests know, judged on any device.

    python -m conformance run --device tpu --budget 5m --out out/run.jsonl
    python -m conformance report out/run.jsonl

Cases are in kinds/, one file a family; how one runs is in worker.py, and which run in catalogue.py.
"""
