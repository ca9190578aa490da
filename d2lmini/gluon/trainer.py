"""Trainer: from the gradients of all devices to one step of an optimizer.

>>> from d2lmini import autograd, gluon, nd
>>> net = gluon.nn.Dense(1, in_units=2)
>>> net.initialize()
>>> trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
>>> with autograd.record():
...     loss = net(nd.ones((4, 2))).sum()
>>> loss.backward()
>>> trainer.step(batch_size=4)           # gradients are sums over the batch: divided by 4
>>> net.bias.data().asscalar()
np.float32(-0.5)

A step, in three parts:

    1. allreduce   add up the gradients of all devices, in the order of the contexts
    2. rescale     by 1 / batch_size (inside the update)
    3. update      every weight by its gradient: one engine task per device (see optimizer/fused.py)

Nothing of it waits: `step` returns when the tasks are pushed, and the next forward pass may be
pushed behind them. With several devices the weights live in a KVStore, which updates them once and
sends them to all (`update_on_kvstore`, the default there); else each device updates its own copies,
alike, for all get the same sums.

With `kvstore="dist_sync"` all processes of a job (`distributed`) do this together: they begin with
the weights of rank 0, sums are over the devices of all of them, and `step(batch_size)`, with the
size of the batch of this one, divides by the global batch: `batch_size` times their number. With
"dist_async" the weights live on rank 0, which updates them by each process's gradients apart.
"""

from __future__ import annotations

import os
from typing import Any

from d2lmini import files
from d2lmini import kvstore as kv
from d2lmini import optimizer as opt
from d2lmini.context import Context
from d2lmini.gluon.parameter import Parameter
from d2lmini.gluon.parameter_dict import ParameterDict
from d2lmini.ndarray import NDArray

_STALE = (
    "Gradient of Parameter `{}` on context {} has not been updated by backward since last `step`. "
    "This could mean a bug in your model that made it only use a subset of the Parameters (Blocks) "
    "for this iteration. If you are intentionally only using a subset, call step with "
    "ignore_stale_grad=True to suppress this warning and skip updating of Parameters with stale "
    "gradient"
)


class Trainer:
    """Applies an optimizer to a set of Parameters.

    params: a ParameterDict or dict (taken in the order of names) or a list of Parameters.
    optimizer: a name with `optimizer_params` as its keywords, or an Optimizer.
    kvstore: a name, a KVStore or KVStoreBase; only several devices need one. update_on_kvstore:
    update the weights there (True), or on each device (False); None: there, if there is one that
    can, but on each device where NCCL sums the gradients.
    compression_params: how gradients travel to a KVStore 'device' (`kvstore.compression`), or
    {'type': 'fp16'} to other processes.
    """

    def __init__(
        self,
        params: Any,
        optimizer: str | opt.Optimizer,
        optimizer_params: dict[str, Any] | None = None,
        kvstore: Any = "device",
        compression_params: dict[str, Any] | None = None,
        update_on_kvstore: bool | None = None,
    ):
        self._params = _list_of(params)
        self._param2idx = {param.name: i for i, param in enumerate(self._params)}
        # As the net has them, which is not the order of names: dense10 comes before dense2.
        as_given = params.values() if isinstance(params, (dict, ParameterDict)) else params
        self._in_net = [self._param2idx[param.name] for param in as_given]
        for param in self._params:
            param._set_trainer(self)
        self._compression_params = compression_params
        self._contexts = self._check_contexts()
        self._entered: set[int] = set()  # the keys of its own in a KVStore that it was given
        options = dict(optimizer_params or {})
        self._scale = float(options.get("rescale_grad", 1.0))
        self._init_optimizer(optimizer, options)
        self._kvstore_params = {"kvstore": kvstore, "update_on_kvstore": update_on_kvstore}
        self._reset_kvstore()
        if isinstance(kvstore, str) and kvstore.startswith("dist"):
            self._prepare()  # the first gradients are to be those of one net, not of several

    # -- making it ready ---------------------------------------------------------------------------

    def _check_contexts(self) -> list[Context]:
        contexts: list[Context] | None = None
        for param in self._params:
            here = param.list_ctx()
            assert contexts is None or contexts == here, (
                "All Parameters must be initialized on the same set of contexts, but Parameter "
                f"{param.name} is initialized on {here} while previous Parameters are initialized "
                f"on {contexts}."
            )
            contexts = here
        return contexts or []

    def _init_optimizer(self, optimizer: Any, options: dict[str, Any]) -> None:
        param_dict = dict(enumerate(self._params))
        if isinstance(optimizer, opt.Optimizer):
            assert not options, (
                "optimizer_params must be None if optimizer is an instance of Optimizer instead of "
                "str"
            )
            optimizer.param_dict = param_dict
            self._optimizer = optimizer
        else:
            self._optimizer = opt.create(optimizer, param_dict=param_dict, **options)
        self._updaters = [opt.get_updater(self._optimizer) for _ in self._contexts]

    def _reset_kvstore(self) -> None:
        """Begin anew at the next step: at first, and when weights were set from outside."""
        self._kv_initialized = False
        self._kvstore: Any = None
        self._distributed: bool | None = None
        self._spans_processes = False
        self._update_on_kvstore: bool | None = None
        self._params_to_init: list[Parameter] = list(self._params)

    def _init_kvstore(self) -> None:
        wanted = self._kvstore_params["kvstore"]
        if isinstance(wanted, str):
            several = len(self._contexts) > 1 or wanted.startswith("dist")
            self._kvstore = kv.create(wanted) if wanted and several else None
            self._entered.clear()
        else:
            self._kvstore = wanted
        self._distributed = self._kvstore is not None and "dist" in self._kvstore.type
        self._spans_processes = getattr(self._kvstore, "spans_processes", False)
        if self._spans_processes:
            self._kvstore.names = {i: param.name for i, param in enumerate(self._params)}
        on_kvstore = self._kvstore_params["update_on_kvstore"]
        able = self._kvstore is None or self._kvstore.is_capable(kv.KVStoreBase.OPTIMIZER)
        if on_kvstore and not able:
            raise ValueError(
                f"Please set update_on_kvstore=False when training with {type(self._kvstore)}: it "
                "does not run optimizers"
            )
        if getattr(self._kvstore, "is_async", False):
            if on_kvstore is False:
                raise ValueError("Please set update_on_kvstore=True when training in async mode.")
            on_kvstore = True
        if on_kvstore is None:
            on_kvstore = able and os.environ.get("MXNET_UPDATE_ON_KVSTORE", "1") != "0"
            if isinstance(self._kvstore, kv.KVStore) and not self._compression_params:
                on_kvstore = on_kvstore and not self._kvstore.has_sums(self._contexts)
        self._update_on_kvstore = bool(on_kvstore) and self._kvstore is not None
        if self._kvstore is not None:
            if self._compression_params:
                self._kvstore.set_gradient_compression(self._compression_params)
            if self._update_on_kvstore:
                self._kvstore.set_optimizer(self._optimizer)
        self._kv_initialized = True

    def _init_params(self) -> None:
        """Bring the parameters that have come to be since last time into the KVStore."""
        waiting = []
        if self._spans_processes:
            self._init_everywhere(self._kvstore)
            return
        for param in self._params_to_init:
            if param._deferred_init:
                waiting.append(param)
            elif self._kvstore is not None:
                index = self._param2idx[param.name]
                if not isinstance(self._kvstore, kv.KVStore):
                    copies = param.list_data()
                    self._kvstore.broadcast(index, copies[0], copies)
                    continue
                # A KVStore that was given has them still from before `_reset_kvstore`.
                known = index in self._entered
                copies = param.list_data()
                (self._kvstore._replace if known else self._kvstore.init)(index, copies[0])
                self._entered.add(index)
                # All devices go on from the first one's values; BatchNorm's running statistics,
                # which no step pulls again, have differed since the first forward pass.
                if len(copies) > 1:
                    self._kvstore.pull(index, copies[1:])
        self._params_to_init = waiting

    def _init_everywhere(self, store: Any) -> None:
        """The same, in all processes of a job: they begin with the weights of rank 0."""
        there = [param for param in self._params_to_init if not param._deferred_init]
        self._params_to_init = [param for param in self._params_to_init if param._deferred_init]
        if there:
            copies = [param.list_data() for param in there]
            keys = [self._param2idx[param.name] for param in there]
            store.broadcast(keys, [each[0] for each in copies], copies)

    def _prepare(self) -> None:
        if not self._kv_initialized:
            self._init_kvstore()
        if self._params_to_init:
            self._init_params()

    # -- the learning rate -------------------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """The rate now, before the parameters' own multipliers."""
        return self._optimizer.learning_rate

    @property
    def optimizer(self) -> opt.Optimizer:
        """The optimizer in use."""
        return self._optimizer

    def set_learning_rate(self, lr: float) -> None:
        """Change the rate; UserWarning, raised, if the optimizer has a scheduler."""
        self._optimizer.set_learning_rate(lr)

    # -- a step ------------------------------------------------------------------------------------

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Update all parameters by the gradients that the last backward left, divided by
        `batch_size`; between `backward` and the next forward pass.

        A gradient that no backward has written since the last step is a UserWarning, raised before
        anything is updated; with `ignore_stale_grad` such parameters are left as they are.
        """
        self._prepare()
        self._rescale(batch_size)
        self._check_fresh(ignore_stale_grad)
        if self._update_on_kvstore:
            self._step_on_kvstore(batch_size)
        else:
            self._allreduce_grads(batch_size)
            self._update(ignore_stale_grad)

    def allreduce_grads(self) -> None:
        """The first part of a step alone: gradients become their sums over all devices. To look
        at them, or clip them, before `update`."""
        self._prepare()
        self._refuse_on_kvstore("allreduce_grads")
        self._allreduce_grads(None)

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """The rest of a step, after `allreduce_grads`."""
        self._prepare()
        self._refuse_on_kvstore("update")
        self._rescale(batch_size)
        self._check_fresh(ignore_stale_grad)
        self._update(ignore_stale_grad)

    def _rescale(self, batch_size: float) -> None:
        workers = self._kvstore.batches if self._spans_processes else 1
        self._optimizer.rescale_grad = self._scale / (batch_size * workers)

    def _refuse_on_kvstore(self, what: str) -> None:
        assert not self._update_on_kvstore, (
            f"{what}() when parameters are updated on kvstore is not supported. Try setting "
            "`update_on_kvstore` to False when creating trainer."
        )

    def _check_fresh(self, ignore_stale_grad: bool) -> None:
        """Raise for the first stale gradient, before anything has changed."""
        for param in self._params_to_init:
            if param._grad_req != "null":
                param.list_data()  # raises: its shape is not known yet
        if ignore_stale_grad:
            return
        for param in self._params:
            if param._grad_req != "null":
                for data in param._data or param.list_data():
                    leaf = data._leaf
                    if leaf is None or not leaf.fresh:
                        raise UserWarning(_STALE.format(param.name, data.context))

    def _step_on_kvstore(self, batch_size: float) -> None:
        """Push the gradients to the KVStore, which updates the weights by their sums, and fetch
        the weights."""
        keys, grads = self._gradients(batch_size)
        if isinstance(self._kvstore, kv.KVStore):
            self._kvstore.push(keys, grads, priority=len(keys))
            keys.sort()
            self._kvstore.pull(keys, [self._params[i].list_data() for i in keys])
        else:
            for nth, (i, parts) in enumerate(zip(keys, grads)):
                weights = self._params[i].list_data()
                self._kvstore.pushpull(i, parts, out=weights, priority=-nth)

    def _allreduce_grads(self, batch_size: float | None) -> None:
        """Let the gradients be their sums over devices and processes. batch_size: that of the
        step; None if an `update` is to come."""
        if self._kvstore is None:
            return
        keys, grads = self._gradients(batch_size)
        if self._spans_processes:  # a call beside `step` waits for all sums
            in_step = batch_size is not None
            self._kvstore.pushpull(keys, grads, priority=len(keys), in_turns=in_step)
        elif isinstance(self._kvstore, kv.KVStore):
            self._kvstore.pushpull(keys, grads, priority=len(keys))
        else:
            for nth, (i, parts) in enumerate(zip(keys, grads)):
                self._kvstore.pushpull(i, parts, out=parts, priority=-nth)

    def _gradients(self, batch_size: float | None) -> tuple[list[int], list[list[NDArray]]]:
        """The keys of the parameters that learn, and their gradients on all devices, in the order
        in which they are to be summed. (Their priorities are above 0: a sum goes before what is
        left of backward on its device, which it holds up but little, and travels meanwhile.)"""
        if self._spans_processes:
            self._kvstore.divisor = batch_size
        # What travels between processes does so in one order, from the last to the first: it should
        # be that in which backward comes to them.
        keys = self._in_net if self._spans_processes else range(len(self._params))
        keys = [i for i in keys if self._params[i]._grad_req != "null"]
        if self._spans_processes:
            for i in keys:
                _freshen(self._params[i])
        return keys, [self._params[i].list_grad() for i in keys]

    def _update(self, ignore_stale_grad: bool) -> None:
        """Update every weight by its gradient on its device."""
        for some in self._in_parts():
            for device, updater in enumerate(self._updaters):
                indices: list[int] = []
                weights: list[NDArray] = []
                grads: list[NDArray] = []
                for i in some:
                    param = self._params[i]
                    weight = (param._data or param.list_data())[device]
                    if not ignore_stale_grad or weight._fresh_grad:
                        indices.append(i)
                        weights.append(weight)
                        grads.append(param._grad[device])  # type: ignore[index]
                        weight._fresh_grad = False
                updater(indices, grads, weights)

    def _in_parts(self) -> list[list[int]]:
        """The parameters that learn, those together that are updated by one task: all. But where
        sums come from other processes those whose sums come together; so that the next forward
        pass can begin with them while others travel."""
        learnt = [i for i, param in enumerate(self._params) if param._grad_req != "null"]
        if self._spans_processes:
            return self._kvstore.parts(learnt)
        return [learnt]

    # -- files -------------------------------------------------------------------------------------

    def save_states(self, fname: str | os.PathLike[str]) -> None:
        """Write the optimizer's attributes and its states (momentum and the like); waits. The
        format is described in `optimizer/updater.py`."""
        self._prepare()
        if self._update_on_kvstore:
            assert not self._params_to_init, (
                "Cannot save trainer states when some parameters are not yet initialized in "
                "kvstore."
            )
            self._kvstore.save_optimizer_states(fname, dump_optimizer=True)
        else:
            files.write(fname, self._updaters[0].get_states(dump_optimizer=True))

    def load_states(self, fname: str | os.PathLike[str]) -> None:
        """Read what `save_states` wrote. The multipliers of the parameters stay what they are.

        MXNet's own files are pickles, which run code when they are read; they are refused, and
        d2lmini's hold data only. MXNetError, and nothing changed, for a file that is damaged.
        """
        self._prepare()
        if self._update_on_kvstore:
            self._kvstore.load_optimizer_states(fname)
            serves = getattr(self._kvstore, "is_async", False)  # with a copy
            if isinstance(self._kvstore, kv.KVStore) and not serves:
                self._optimizer = self._kvstore._updater.optimizer
        else:
            with open(fname, "rb") as file:
                states = file.read()
            for updater in self._updaters:
                updater.optimizer = self._optimizer
                updater.set_states(states, fname)
                self._optimizer = updater.optimizer
        self._optimizer.param_dict = dict(enumerate(self._params))


def _freshen(param: Parameter) -> None:
    """A gradient that this process has not computed is 0 in the sum with those of others, by which
    all update alike."""
    for data, grad in zip(param.list_data(), param.list_grad()):
        if not data._fresh_grad:
            grad[:] = 0
            data._fresh_grad = True


def _list_of(params: Any) -> list[Parameter]:
    """The Parameters, those of a dict in the order of their names."""
    if isinstance(params, (dict, ParameterDict)):
        params = [params[name] for name in sorted(params.keys())]
    if not isinstance(params, (list, tuple)):
        raise ValueError(
            f"First argument must be a list or dict of Parameters, got {type(params)}."
        )
    for param in params:
        if not isinstance(param, Parameter):
            raise ValueError(
                f"First argument must be a list or dict of Parameters, got list of {type(param)}."
            )
    return list(params)
