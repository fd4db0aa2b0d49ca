"""The Torch engine: a worker, one process a rank, that measures cells and knows nothing of launching or judging.

`python -m course.lab.torch_engine CONFIG.json` under torchrun, SLURM or anything else that sets RANK, LOCAL_RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT. This package is the only place where the lab imports torch.
"""
