"""Two processes (gloo, CPU) see the subsets and weights that one process sees, and step to the same weights."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("torch.distributed")
if not torch.distributed.is_available():
    pytest.skip("this torch was built without torch.distributed", allow_module_level=True)

WORKER = """
import json, os, sys
import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from coresift.training import CoresetSampler, WeightedDataset, weighted_loss

torch.set_num_threads(1)
rank, world, port = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if world > 1:
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
rng = np.random.default_rng(0)
X = torch.tensor(rng.normal(size=(90, 4)), dtype=torch.float64)
y = torch.tensor(rng.integers(0, 3, 90))
def trained(strategy):
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(torch.sin(torch.arange(parameter.numel()).double() + number).view_as(parameter))
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model)
    data = WeightedDataset(TensorDataset(torch.arange(90), X, y))
    sampler = CoresetSampler((X, y), strategy, 21, select_every=2, seed=5, model=model)
    loader = DataLoader(data, 22 // world, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    epochs = []
    for epoch in range(4):
        sampler.set_epoch(epoch)
        seen = []
        for rows, x, target, w in loader:
            losses = functional.cross_entropy(model(x), target, reduction="none")
            loss = weighted_loss(losses, w, distributed=world > 1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += list(zip(rows.tolist(), w.tolist()))
        epochs.append(seen)
        if strategy.endswith("seen"):
            sampler.record([row for row, _ in seen], [1.0 + row**2 % 89 for row, _ in seen])
    return {"epochs": epochs, "weights": [p.tolist() for p in model.parameters()]}

print(json.dumps({strategy: trained(strategy) for strategy in ("rbf", "gradmatch", "adaptive-coreset-seen")}))
sys.stdout.flush()
if world > 1:
    torch.distributed.barrier()
os._exit(0)  # threads of gloo that outlive the interpreter abort now and then, long after what is tested
"""


def run(tmp_path: Path, world: int) -> list[dict[str, Any]]:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    workers = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(world), port],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(world)
    ]
    found = []
    for worker in workers:
        out, err = worker.communicate(timeout=120)
        assert worker.returncode == 0, err
        found.append(json.loads(out))
    return found


@pytest.mark.slow
def test_two_processes_see_what_one_sees(tmp_path: Path) -> None:
    (alone,), together = run(tmp_path, 1), run(tmp_path, 2)
    for strategy in ("rbf", "gradmatch", "adaptive-coreset-seen"):
        compare(alone[strategy], [found[strategy] for found in together])


def compare(one: dict[str, Any], two: list[dict[str, Any]]) -> None:
    subsets = []
    for epoch in range(4):
        alone = dict(one["epochs"][epoch])
        parts = [part["epochs"][epoch] for part in two]
        assert len(parts[0]) == len(parts[1]) == 11
        together = [pair for part in parts for pair in part if pair[1] > 0]
        assert len(together) == len(alone) == 21
        assert dict(together) == pytest.approx(alone, rel=1e-6)
        subsets.append(frozenset(alone))
    assert subsets[0] == subsets[1] != subsets[2] == subsets[3]
    for ours, theirs, other in zip(one["weights"], two[0]["weights"], two[1]["weights"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-8)  # the same gradients, summed in another order
        assert theirs == other
