"""A stack of trials as one program.

Every parameter has a leading trial axis; the loss of one trial becomes the loss of all by `torch.vmap`, and
on a GPU one step of all is recorded once as a CUDA graph and replayed, with nothing asked of it in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from shels.config import Augmentation
from shels.errors import SettingsError
from shels.kernels import trial_axis
from shels.model.normalisation import counting
from shels.training import optimisers
from shels.training.checkpoints import Params, RunState
from shels.training.data import PADDING, Batch, State, TrialTraining, joined_inputs, shown, side_by_side
from shels.training.losses import SURPLUS, AfterStep, Objective, class_scores, validation_sums
from shels.training.monitoring import Monitoring, right_answers
from shels.training.trial_run import Losses, Plan, mean_losses


class Stack:
    """Trials side by side: parameters (trials, ...), one program for a step of all.

    Trials may differ in samples, classes, seeds and where they stand. One that has no step left before its
    next validation rests: nothing of it changes until the others are there.
    """

    def __init__(self, trials: Sequence[TrialTraining], objective: Objective, precision: torch.dtype) -> None:
        self.trials, self.objective, self.precision = trials, objective, precision
        self.settings = objective.settings
        self.network = max((trial.network for trial in trials), key=_classes)
        self.device = next(self.network.parameters()).device
        self.params = stacked_params([trial.network for trial in trials])
        self.buffers = stacked_buffers([trial.network for trial in trials])
        self.moments = optimisers.moments_of(objective.settings.optimiser, self.params)
        self.state = _stacked_state(trials, _classes(self.network))
        self.inputs, self.offsets = joined_inputs([trial.data.inputs for trial in trials], self.device)
        self.monitoring = Monitoring.of(trials, self.device)
        self.states = [self._run_state(trial) for trial in range(len(trials))]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._held_out: tuple[Tensor, Tensor] | None = None
        self._steps = 0

    def _run_state(self, trial: int) -> RunState:
        """Return one trial's part of the stack, without the rows of the head that are not its own."""
        shapes = {name: value.shape for name, value in self.trials[trial].network.named_parameters()}

        def own(values: Params) -> Params:
            return {name: values[name][trial][: shapes[name][0]].detach() for name in shapes}

        moments = {kind: own(values) for kind, values in self.moments.items()}
        buffers = {name: value[trial] for name, value in self.buffers.items()}
        return RunState(own(self.params), moments, buffers=buffers)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        if self.device.type != "cuda":
            yield
        else:
            with torch.cuda.device(self.device), trial_axis.stacking(self.precision):
                yield

    def load(self, plans: Sequence[Plan | None]) -> None:
        """Begin the steps up to the next validation of every trial that has a plan."""
        self._plans = plans
        with self._computing():
            self._load(plans, max(len(plan.sizes) for plan in plans if plan is not None))

    def take(self, count: int) -> None:
        """Take so many steps in every trial that has them; on a GPU nothing is waited for."""
        with self._computing():
            for _ in range(count):
                if self._graph is not None:
                    self._graph.replay()
                else:
                    self._step()

    def validate(self) -> None:
        """Compute how every trial stands on its validation data; on a GPU nothing is waited for."""
        with self._computing():
            self._sums = self._validation_sums()
        for run, plan in zip(self.states, self._plans, strict=True):
            run.step += 0 if plan is None else len(plan.sizes)

    @torch.no_grad()
    def monitor(self) -> Tensor:
        """Count each trial's right answers on its monitored samples, still on the device: (trials, 2)."""
        parts, dtype = self.monitoring, next(iter(self.params.values())).dtype

        def one(params: Params, inputs: Tensor, labels: Tensor, newest: Tensor, state: State) -> Tensor:
            scores = parts.scores(self.network, params, inputs, state)
            return right_answers(scores, labels, newest)

        counts = torch.zeros(len(self.trials), 2, dtype=torch.int64, device=self.device)
        self.network.eval()
        with self._computing():
            for inputs, labels in parts.batches(dtype):
                counts += torch.vmap(one)(
                    self.params | self.buffers, inputs, labels, parts.newest, self.state
                )
        self.network.train()
        return counts

    def results(self) -> list[Losses]:
        """Return how the steps and the validation of each trial went."""
        totals: list[float] = self._total.tolist()
        sums = [None] * len(totals) if self._sums is None else self._sums.tolist()
        steps = [1 if plan is None else len(plan.sizes) for plan in self._plans]
        return [mean_losses(*each) for each in zip(totals, steps, sums, self.trials, strict=True)]

    def _load(self, plans: Sequence[Plan | None], steps: int) -> None:
        """Bring what the next steps need to the device: whose turn, which samples, which rates."""
        if steps > self._steps:
            self._allocate(steps)
        index = torch.zeros(len(plans), self._steps, self.settings.batch_size, dtype=torch.int64)
        labels = torch.full_like(index, PADDING)
        width = optimisers.table_width(self.settings.optimiser)
        tables = torch.zeros(len(plans), self._steps, width, dtype=torch.float64)
        for trial, plan in enumerate(plans):
            if plan is None:
                continue
            rows, training = plan.rows, self.trials[trial].data.training
            there = rows >= 0
            index[trial, : len(rows)] = training.places.cpu()[rows.clamp(min=0)] + self.offsets[trial]
            labels[trial, : len(rows)] = torch.where(there, training.labels.cpu()[rows.clamp(min=0)], PADDING)
            taken = self.states[trial].step
            tables[trial] = optimisers.table(self.settings.optimiser, taken, plan.rates, self._steps)
        if self.device.type == "cuda" and self._graph is None:
            self._record()
        for mine, new in ((self._index, index), (self._labels, labels), (self._table, tables)):
            mine.copy_(new)
        self._place.zero_()
        self._total.zero_()
        torch.manual_seed(next(plan.seed for plan in plans if plan is not None))

    def _allocate(self, steps: int) -> None:
        """Make room for a number of steps; a graph that reads the old room is void."""
        trials, dtype = len(self.trials), next(iter(self.params.values())).dtype
        self._steps, self._graph = steps, None
        shape = (trials, steps, self.settings.batch_size)
        self._index = torch.zeros(shape, dtype=torch.int64, device=self.device)
        self._labels = torch.full_like(self._index, PADDING)
        width = optimisers.table_width(self.settings.optimiser)
        self._table = torch.zeros(trials, steps, width, dtype=dtype, device=self.device)
        self._place = torch.zeros(1, dtype=torch.int64, device=self.device)
        self._total = torch.zeros(trials, dtype=dtype, device=self.device)

    def _record(self) -> None:
        """Record a step as a CUDA graph, after a few in which every trial rests."""
        from shels.kernels.launching import compile_for  # noqa: PLC0415

        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            compile_for(self._step)
            for _ in range(2):
                self._place.zero_()
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        self._place.zero_()
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            self._step()
        self._graph = graph

    def _step(self) -> None:
        """Take the step at the current place, in every trial that has one."""
        tables = (self._index, self._labels, self._table)
        index, labels, now = (table.index_select(1, self._place).squeeze(1) for table in tables)
        names, values = list(self.params), list(self.params.values())

        def one(params: Sequence[Tensor], buffers: Params, batch: Batch, state: State) -> Tensor:
            with counting(batch.labels != PADDING):
                return self.objective.loss(dict(zip(names, params, strict=True)) | buffers, batch, state)

        batch = self._batch(index, labels, self.settings.augmentation)
        losses = torch.vmap(one, randomness="different")(values, self.buffers, batch, self.state)
        grads = torch.autograd.grad(losses.sum(), values, materialize_grads=True)
        optimisers.stacked_step(self.settings.optimiser, self.params, grads, self.moments, now)
        active = now[:, 1] > 0
        if self.objective.after_step is not None:
            self._after(self.objective.after_step, active)
        with torch.no_grad():
            self._total += torch.where(active, losses, 0.0)
            self._place += 1

    @torch.no_grad()
    def _after(self, after_step: AfterStep, active: Tensor) -> None:
        changed = torch.vmap(after_step)(self.params, self.state)
        for name, new in changed.items():
            old = self.params[name]
            old.copy_(torch.where(active.view(-1, *[1] * (old.ndim - 1)), new, old))

    def _batch(self, index: Tensor, labels: Tensor, augmentation: Augmentation | None = None) -> Batch:
        """Return the samples at these places of every trial: (trials, n) -> inputs (trials, n, *shape)."""
        prepared = shown(self.inputs[index.flatten()], self.trials[0].data.prepare, augmentation)
        prepared = prepared.to(next(iter(self.params.values())).dtype)
        return Batch(prepared.reshape(*index.shape, *prepared.shape[1:]), labels)

    @torch.no_grad()
    def _validation_sums(self) -> Tensor | None:
        """Return each trial's sums over its validation data, still on the device: (trials, 2)."""
        parts = [trial.data.validation for trial in self.trials]
        if all(part is None for part in parts):
            return None
        if self._held_out is None:
            self._held_out = side_by_side(parts, self.offsets, self.device)
        sums = torch.zeros(len(parts), 2, dtype=torch.float64, device=self.device)
        self.network.eval()

        def one(params: Params, inputs: Tensor, labels: Tensor, state: State) -> Tensor:
            return validation_sums(class_scores(self.network, params, inputs, state), labels)

        size = self.trials[0].data.prepare.evaluation_batch
        for index, labels in zip(*(torch.split(each, size, dim=1) for each in self._held_out), strict=True):
            batch = self._batch(index, labels)
            sums += torch.vmap(one)(self.params | self.buffers, batch.inputs, batch.labels, self.state)
        self.network.train()
        return sums


def _classes(network: nn.Module) -> int:
    """Return how many rows the last layer has."""
    head = getattr(network, "head", None)
    return len(head.weight if isinstance(head, nn.Module) else list(network.parameters())[-1])  # type: ignore[arg-type]


def stacked_params(networks: Sequence[nn.Module]) -> Params:
    """Return every parameter with a trial axis, convolutions channels-last, missing rows of heads 0."""
    out: Params = {}
    each = [dict(network.named_parameters()) for network in networks]
    for name, like in max(networks, key=_classes).named_parameters():
        shape = (len(each), *like.shape)
        if like.ndim == 4:
            value = like.new_zeros([shape[i] for i in (0, 1, 3, 4, 2)]).permute(0, 1, 4, 2, 3)
        else:
            value = like.new_zeros(shape)
        for trial, params in enumerate(each):
            value[trial, : len(params[name])] = params[name].detach()
        out[name] = value.detach().requires_grad_()
    return out


def stacked_buffers(networks: Sequence[nn.Module]) -> Params:
    """Return every buffer with a trial axis."""
    each = [dict(network.named_buffers()) for network in networks]
    return {name: torch.stack([buffers[name].detach() for buffers in each]) for name in each[0]}


def _stacked_state(trials: Sequence[TrialTraining], most: int) -> dict[str, Tensor]:
    for name in {name for trial in trials for name in trial.state}:
        if len({trial.state[name].shape if name in trial.state else None for trial in trials}) > 1:
            raise SettingsError(f"state {name!r} is missing or of another shape in one of the trials stacked")
    state = {name: torch.stack([trial.state[name] for trial in trials]) for name in trials[0].state}
    counts = [_classes(trial.network) for trial in trials]
    if min(counts) < most:
        device = next(trials[0].network.parameters()).device
        surplus = torch.arange(most, device=device) >= torch.tensor(counts, device=device)[:, None]
        state[SURPLUS] = torch.where(surplus, -torch.inf, 0.0)
    return state
