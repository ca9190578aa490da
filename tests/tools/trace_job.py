"""What `test_trace_merge.py` launches: each rank trains some steps in a trace, and saves it to
FOLDER/RANK.json.gz. Rank 1 is late: `trace_job.py FOLDER task` with a slow task that its gradients
need, `trace_job.py FOLDER program` by its own Python."""

import sys
import time

from d2lmini import autograd, engine, gluon, kvstore, nd, profile
from d2lmini.gluon import nn

LATE_S = 0.03
folder, late = sys.argv[1:]
store = kvstore.create("dist_sync")
net = nn.Dense(2, in_units=3)
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=store)
x = nd.ones((4, 3))


def step():
    global x
    if store.rank == 1 and late == "task":
        engine.push(lambda: time.sleep(LATE_S), writes=[x._chunk], name="slow")  # the slow task
    with autograd.record():
        loss = (net(x) ** 2).sum()
    loss.backward()
    if store.rank == 1 and late == "program":
        time.sleep(LATE_S)
    trainer.step(8)  # sums


step()
nd.waitall()
store.barrier()
with profile() as trace:
    for _ in range(5):
        step()
trace.save(f"{folder}/{store.rank}.json.gz")
