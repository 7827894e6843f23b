"""The speed that a plan rests on is measured as the workers will run."""

import numpy as np
import torch

from coresift.data import ArrayDataset, DatasetSplits
from coresift.experiments.bench.planning import probe
from coresift.experiments.bench.protocol import load_protocol
from coresift.training.models import MLP


def test_speed_is_measured_with_the_threads_of_a_worker(monkeypatch):
    seen = set()

    class Watched(MLP):
        def forward(self, x):
            seen.add(torch.get_num_threads())
            return super().forward(x)

    monkeypatch.setattr("coresift.training.build_model", lambda *_, **__: Watched(3, 2, 4))
    part = ArrayDataset(np.zeros((4, 3), dtype=np.float32), np.array([0, 1, 0, 1]))
    data = DatasetSplits("made up", part, part, 2, "classification", (3,))
    before = torch.get_num_threads()
    for threads in (1, 2):
        seen.clear()
        speed = probe(load_protocol("covtype"), data, "cpu", threads)
        assert seen == {threads}
        assert torch.get_num_threads() == before
        assert speed.training > 0
        assert speed.forward > 0
