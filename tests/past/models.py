"""Models of one's own, as reports describe them: what they keep, and how many rows they make of a sample."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import BertConfig, BertModel

TOKENS = 512
"""Of a window of a document."""


class _Classifier(nn.Module):
    """Words, one layer, a head; ``keep`` says what outlives a step."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.inner, self.head = nn.Embedding(50, 64), nn.Linear(64, 64), nn.Linear(64, 2)
        self.kept: list[torch.Tensor] = []

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.inner(self.words(input_ids)))
        loss = nn.functional.cross_entropy(self.head(hidden.mean(1)), labels)
        self.keep(hidden, loss)
        return loss

    def keep(self, hidden: torch.Tensor, loss: torch.Tensor) -> None:
        """Nothing."""


class _Stored(_Classifier):
    def keep(self, hidden: torch.Tensor, loss: torch.Tensor) -> None:
        self.kept.append(hidden)


class _Copied(_Classifier):
    def keep(self, hidden: torch.Tensor, loss: torch.Tensor) -> None:
        self.kept.append(hidden.detach() * 2)


class _RunningLoss(_Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.average: torch.Tensor | float = 0.0

    def keep(self, hidden: torch.Tensor, loss: torch.Tensor) -> None:
        self.average = self.average + loss


class _LossNeverRunBackward(_RunningLoss):
    """A second loss that is only watched, and added up with its graph."""

    def keep(self, hidden: torch.Tensor, loss: torch.Tensor) -> None:
        super().keep(hidden, torch.tanh(hidden).square().mean())


class _Distilled(nn.Module):
    """A student of one layer and a teacher of two, whose hidden states are kept as targets, with their graph."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(50, 64), nn.Linear(64, 2)
        self.student = nn.Linear(64, 64)
        self.teacher = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.targets: list[torch.Tensor] = []

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        words = self.words(input_ids)
        hidden, target = torch.tanh(self.student(words)), self.teacher(words)
        self.targets.append(target)
        distance = nn.functional.mse_loss(hidden, target.detach())
        return distance + nn.functional.cross_entropy(self.head(hidden.mean(1)), labels)


class _Checkpointed(_Classifier):
    """A checkpointed layer behind the words, as a model of transformers before 4.35 has it, and the rest after it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.run = nn.Linear(64, 64), lambda layer, words: layer(words)

    def activation_checkpointing_enable(self, activation_checkpointing_kwargs: dict[str, Any]) -> None:
        """The switch, which leaves the embeddings' output as it is."""
        self.run = partial(checkpoint, **activation_checkpointing_kwargs)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.inner(self.run(self.layer, self.words(input_ids))))
        return nn.functional.cross_entropy(self.head(hidden.mean(1)), labels)


class _Windows(nn.Module):
    """Tags whole documents: every window of one is a row of the encoder."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        config = BertConfig(vocab_size=1000, num_hidden_layers=layers, attn_implementation="eager")
        self.encoder, self.head = BertModel(config, add_pooling_layer=False), nn.Linear(config.hidden_size, 9)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(input_ids.reshape(-1, TOKENS)).last_hidden_state
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), labels.flatten())


def stored() -> nn.Module:
    """Every step's output is stored, with its graph."""
    return _Stored()


def copied() -> nn.Module:
    """Every step's output is stored, as a copy without a graph."""
    return _Copied()


def running_loss() -> nn.Module:
    """The loss that backward runs through is added up, with its graph."""
    return _RunningLoss()


def watched_loss() -> nn.Module:
    """A loss that no backward runs through is added up, with its graph."""
    return _LossNeverRunBackward()


def teacher() -> nn.Module:
    """A teacher without no_grad, whose hidden states are kept."""
    return _Distilled()


def checkpointed() -> nn.Module:
    """Reentrant or not, the layer behind the embeddings is checkpointed."""
    return _Checkpointed()


def windows(batch_size: int, seq_length: int) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Documents of ``seq_length`` tokens, and a label for each token."""
    ids = torch.zeros(batch_size, seq_length, dtype=torch.long)
    return _Windows(12), {"input_ids": ids, "labels": ids}


def short_windows(batch_size: int, seq_length: int) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """As :func:`windows`, with an encoder of two layers."""
    ids = torch.zeros(batch_size, seq_length, dtype=torch.long)
    return _Windows(2), {"input_ids": ids, "labels": ids}
