"""Does every architecture that Transformers knows run on a PyTorch device as it does on the CPU?

    python -m conformance models --device tpu --out out/models.jsonl

A type is a model_type of the installed Transformers. universe.py says which there are and which are held out; shrink.py
makes their configurations small; inputs.py makes inputs from the signature and the documentation of `forward`;
recipes.py finds the combination that runs on the CPU; judge.py compares the device with it; pool.py gives each type a
process. None of them names a model.
"""
