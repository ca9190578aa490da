"""Trainer: applies an optimizer to the gradients of all devices.

>>> from d2lmini import autograd, gluon, nd
>>> net = gluon.nn.Dense(1, in_units=2)
>>> net.initialize()
>>> trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
>>> with autograd.record():
...     loss = net(nd.ones((4, 2))).sum()
>>> loss.backward()
>>> trainer.step(batch_size=4)           # gradients are sums over the batch; step divides by 4
>>> net.bias.data().asscalar()
np.float32(-0.5)

A step has three parts:

    1. allreduce   add up the gradients of all devices, in the order of the contexts
    2. rescale     multiply by 1 / batch_size (inside the update)
    3. update      update every weight: one engine task per device (see optimizer/optimizer.py)

A step is asynchronous: `step` returns once its tasks are pushed, and the program may push the next
forward pass at once. With several devices the weights live in a KVStore, which updates each weight
once and sends the result to all devices (`update_on_kvstore`, the default there). Otherwise each
device updates its own copies; the copies stay equal, because all devices get the same sums.

With `kvstore="dist_sync"` all processes of a job (`distributed`) take each step together. The
processes start from the weights of rank 0, and the sums cover the devices of all processes.
`step(batch_size)` takes the batch size of its own process and divides by the global batch size,
`batch_size` times the number of processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from d2lmini import kvstore as kv
from d2lmini import optimizer as opt
from d2lmini.base import MXNetError, environment, explain_left_out
from d2lmini.context import Context
from d2lmini.device import files
from d2lmini.gluon.parameter import Parameter
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

    params: a ParameterDict or dict (in the order of names) or a list of Parameters. optimizer: a
    name with `optimizer_params` as keywords, or an Optimizer. kvstore: a name or a KVStore; only
    several devices need a KVStore. update_on_kvstore: update the weights in the KVStore (True) or
    on each device (False); None: in the KVStore, unless NCCL sums the gradients. MXNetError for
    compression_params, which are left out.
    """

    #: Mixed precision (`contrib.amp.init_trainer`): decides whether gradients overflow.
    _amp_loss_scaler: Any = None
    _amp_original_scale: float = 1.0

    def __init__(
        self, params: Any, optimizer: str | opt.Optimizer,
        optimizer_params: dict[str, Any] | None = None, kvstore: Any = "device",
        compression_params: dict[str, Any] | None = None, update_on_kvstore: bool | None = None,
    ):  # fmt: skip
        self._params = _list_of(params)
        self._param2idx = {param.name: i for i, param in enumerate(self._params)}
        # In the order of the net, which is not the order of names: dense10 comes before dense2.
        as_given = params.values() if isinstance(params, dict) else params
        self._in_net = [self._param2idx[param.name] for param in as_given]
        for param in self._params:
            param._trainer = self
        if compression_params:
            raise MXNetError(explain_left_out("Trainer.compression_params"))
        self._contexts = self._check_contexts()
        self._entered: set[int] = set()  # own keys in a KVStore given by the user
        param_dict = dict(enumerate(self._params))
        if isinstance(optimizer, opt.Optimizer):
            assert not optimizer_params, (
                "optimizer_params must be None if optimizer is an Optimizer"
            )
            optimizer.param_dict = param_dict
            self._optimizer = optimizer
        else:
            options = optimizer_params or {}
            self._optimizer = opt.create(optimizer, param_dict=param_dict, **options)
        self._updaters = [opt.get_updater(self._optimizer) for _ in self._contexts]
        self._scale = float(self._optimizer.rescale_grad)
        self._kvstore_params = {"kvstore": kvstore, "update_on_kvstore": update_on_kvstore}
        self._reset_kvstore()
        if str(getattr(kvstore, "type", kvstore)).startswith("dist"):
            self._prepare()  # so that the first gradients belong to one net only

    # -- making it ready ---------------------------------------------------------------------------

    def _check_contexts(self) -> list[Context]:
        contexts = [param.list_ctx() for param in self._params]
        for param, here in zip(self._params, contexts):
            assert here == contexts[0], (
                "All Parameters must be initialized on the same set of contexts, but Parameter "
                f"{param.name} is initialized on {here} while previous Parameters are initialized "
                f"on {contexts[0]}."
            )
        return contexts[0] if contexts else []

    def _reset_kvstore(self) -> None:
        """Make the next step set up the KVStore: at first, and after the user has set weights."""
        self._kv_initialized = False
        self._kvstore: Any = None
        self._spans_processes = False
        self._update_on_kvstore: bool | None = None
        self._params_to_init: list[Parameter] = list(self._params)

    def _init_kvstore(self) -> None:
        wanted = self._kvstore_params["kvstore"]
        if isinstance(wanted, str):
            several = len(self._contexts) > 1 or wanted.startswith("dist")
            self._kvstore = kv.create(wanted) if wanted and several else None
            self._entered.clear()
        elif wanted is None or isinstance(wanted, kv.KVStore):
            self._kvstore = wanted
        else:
            raise TypeError(f"kvstore: expected a name, a KVStore or None, got {wanted!r}")
        self._spans_processes = self._kvstore is not None and self._kvstore.spans_processes
        if self._spans_processes:
            self._kvstore.names = {i: param.name for i, param in enumerate(self._params)}
        on_kvstore = self._kvstore_params["update_on_kvstore"]
        if on_kvstore is None and self._kvstore is not None:
            on_kvstore = environment.read("MXNET_UPDATE_ON_KVSTORE")
            on_kvstore = on_kvstore and not self._kvstore.has_sums(self._contexts)
        self._update_on_kvstore = bool(on_kvstore) and self._kvstore is not None
        if self._update_on_kvstore:
            self._kvstore.set_optimizer(self._optimizer)
        self._kv_initialized = True

    def _init_params(self) -> None:
        """Enter the parameters initialized since the last step into the KVStore. All devices, and
        all processes of a job, start from the values of the first device of rank 0."""
        there = [param for param in self._params_to_init if not param._deferred_init]
        store = self._kvstore
        if store is not None and there:
            keys = [self._param2idx[param.name] for param in there]
            copies = [param.list_data() for param in there]
            if self._spans_processes:
                store.broadcast(keys, [copy[0] for copy in copies], copies)
            else:
                for key, copy in zip(keys, copies):
                    self._enter(store, key, copy)
        self._params_to_init = [param for param in self._params_to_init if param._deferred_init]

    def _enter(self, store: Any, key: int, copies: list[NDArray]) -> None:
        # A KVStore given by the user keeps its keys across `_reset_kvstore`.
        (store._replace if key in self._entered else store.init)(key, copies[0])
        self._entered.add(key)
        # BatchNorm's running statistics, which no step pulls again, have differed since the first
        # forward pass.
        if len(copies) > 1:
            store.pull(key, copies[1:])

    def _prepare(self) -> None:
        if not self._kv_initialized:
            self._init_kvstore()
        if self._params_to_init:
            self._init_params()

    # -- the learning rate -------------------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """The current rate, before the parameters' own multipliers."""
        return self._optimizer.learning_rate

    @property
    def optimizer(self) -> opt.Optimizer:
        """The optimizer in use."""
        return self._optimizer

    def set_learning_rate(self, lr: float) -> None:
        """Change the rate; raises UserWarning if the optimizer has a scheduler."""
        self._optimizer.set_learning_rate(lr)

    # -- a step ------------------------------------------------------------------------------------

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Update all parameters with the gradients of the last backward, divided by `batch_size`.

        Call `step` between `backward` and the next forward pass. A gradient that no backward has
        written since the last step raises UserWarning before any update; with `ignore_stale_grad`
        such parameters are skipped. (If the KVStore updates, a gradient that was written once
        counts as written, as in MXNet, and none is skipped.)
        """
        self._prepare()
        self._begin(batch_size, ignore_stale_grad)
        if not self._update_on_kvstore:
            self._allreduce_grads(batch_size)
            self._update(ignore_stale_grad)
        elif not self._has_overflow():
            self._step_on_kvstore(batch_size)

    def allreduce_grads(self) -> None:
        """Replace the gradients by their sums over all devices, the first part of a step. Use it to
        inspect or clip the sums before `update`."""
        self._prepare_apart("allreduce_grads")
        self._allreduce_grads(None)

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Rescale and update, the rest of a step after `allreduce_grads`."""
        self._prepare_apart("update")
        self._begin(batch_size, ignore_stale_grad)
        self._update(ignore_stale_grad)

    def _prepare_apart(self, what: str) -> None:
        """Prepare for a part of a step."""
        self._prepare()
        assert not self._update_on_kvstore, (
            f"{what}() when parameters are updated on kvstore is not supported. Try setting "
            "`update_on_kvstore` to False when creating trainer."
        )

    def _begin(self, batch_size: float, ignore_stale_grad: bool) -> None:
        """Set the divisor of the step; raise for the first stale gradient, before any change."""
        workers = self._kvstore.batches if self._spans_processes else 1
        self._optimizer.rescale_grad = float(self._scale / (batch_size * workers))
        for param in self._params_to_init:
            if param._grad_req != "null":
                param.list_data()  # raises if the shape is still unknown
        if ignore_stale_grad:
            return
        for param in self._params:
            if param._grad_req != "null":
                for data in param._data or param.list_data():
                    node = data._node
                    if node is None or not node[0].fresh:
                        raise UserWarning(_STALE.format(param.name, data.context))

    def _step_on_kvstore(self, batch_size: float) -> None:
        """Push the gradients to the KVStore, which updates the weights, and pull the weights."""
        keys, grads = self._gradients(batch_size)
        self._kvstore.push(keys, grads, priority=len(keys))
        keys.sort()
        self._kvstore.pull(keys, [self._params[i]._data for i in keys])

    def _allreduce_grads(self, batch_size: float | None) -> None:
        """Replace the gradients by their sums over devices and processes. batch_size: that of the
        step; None if `update` follows."""
        if self._kvstore is None:
            return
        keys, grads = self._gradients(batch_size)
        # Outside `step`, the call waits for all sums over processes.
        how = {"in_turns": batch_size is not None} if self._spans_processes else {}
        self._kvstore.pushpull(keys, grads, priority=len(keys), **how)

    def _gradients(self, batch_size: float | None) -> tuple[list[int], list[list[NDArray]]]:
        """The keys of the trainable parameters and their gradients on all devices, in the order of
        summation. (Their priorities are above 0: a sum runs before the rest of backward on its
        device. The sum delays backward only little, and its transfer overlaps with backward.)"""
        if not self._spans_processes:
            keys = self._learnt(range(len(self._params)))
        else:
            self._kvstore.divisor = batch_size
            # Transfers between processes run in a fixed order, from the last key to the first:
            # ideally the order in which backward produces the gradients.
            keys = self._learnt(self._in_net)
            for i in keys:
                # Gradients that this process has not computed add nothing to the sum, with which
                # all processes update alike.
                for data, grad in zip(self._params[i].list_data(), self._params[i].list_grad()):
                    if not data._fresh_grad:
                        grad[:] = 0
                        data._fresh_grad = True
        return keys, [self._params[i]._grad or self._params[i].list_grad() for i in keys]

    def _has_overflow(self) -> bool:
        """True if mixed precision is to skip this step: a gradient holds inf or nan. Waits then."""
        scaler = self._amp_loss_scaler
        return scaler is not None and scaler.has_overflow(self._params)

    def _update(self, ignore_stale_grad: bool) -> None:
        """Update every weight on its device with its gradient, unless gradients overflowed."""
        if self._has_overflow():
            return
        parts = [self._learnt(range(len(self._params)))]
        if self._spans_processes:
            # A part holds the parameters whose sums arrive together, so that the next forward pass
            # can begin with them while other sums are in transit.
            parts = self._kvstore.parts(parts[0])
        for some in parts:
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

    def _learnt(self, keys: Iterable[int]) -> list[int]:
        return [i for i in keys if self._params[i]._grad_req != "null"]

    # -- files -------------------------------------------------------------------------------------

    def save_states(self, fname: str | os.PathLike[str]) -> None:
        """Write the optimizer's attributes and states (such as momentum); waits.
        `optimizer/updater.py` describes the format."""
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
        """Read a file of `save_states`. The parameters' multipliers do not change.

        MXNet's own files are refused, because they are pickles, which run code when read; d2lmini's
        files hold data only. A damaged file raises MXNetError and changes nothing.
        """
        self._prepare()
        if self._update_on_kvstore:
            self._kvstore.load_optimizer_states(fname)
            self._optimizer = self._kvstore._updater.optimizer
        else:
            states = Path(fname).read_bytes()
            for updater in self._updaters:
                updater.optimizer = self._optimizer
                updater.set_states(states, fname)
                self._optimizer = updater.optimizer
        self._optimizer.param_dict = dict(enumerate(self._params))


def _list_of(params: Any) -> list[Parameter]:
    """The Parameters as a list; a dict's in the order of their names."""
    if isinstance(params, dict):
        params = [params[name] for name in sorted(params.keys())]
    if not isinstance(params, (list, tuple)) or any(not isinstance(p, Parameter) for p in params):
        raise ValueError(
            f"First argument must be a list or dict of Parameters, got {params!r:.200}."
        )
    return list(params)
