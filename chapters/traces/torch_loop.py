"""A small training loop of PyTorch with a planted fault, an `.item()` in each step; the program
behind torch-stack.json.gz (with_stack=True) and torch-plain.json.gz:

    python torch_loop.py FOLDER
"""

import gzip
import os
import sys

import torch
from torch.profiler import ProfilerActivity, profile

torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loss_of = torch.nn.CrossEntropyLoss()
X = torch.rand(128, 256)
y = torch.zeros(128, dtype=torch.long)


def train(steps):
    total = 0.0
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(net(X), y)
        loss.backward()
        optimizer.step()
        total += loss.item()  # the fault
    return total


if __name__ == "__main__":
    train(3)
    for name, with_stack in (("stack", True), ("plain", False)):
        with profile(
            activities=[ProfilerActivity.CPU],
            with_stack=with_stack,
            profile_memory=True,
            record_shapes=with_stack,
        ) as found:
            train(5)
        path = os.path.join(sys.argv[1], f"torch-{name}.json")
        found.export_chrome_trace(path)
        with open(path, "rb") as written, open(path + ".gz", "wb") as packed:
            packed.write(gzip.compress(written.read(), mtime=0))
        os.unlink(path)
