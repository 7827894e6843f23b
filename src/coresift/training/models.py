"""Networks by name, whose weights depend on the seed alone; the global random states stay as they were."""

import inspect
import math
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .._errors import InvalidInputError, InvalidTypeError
from .._validation import check_choice, check_count
from ..selection.gradients import own_randomness


def build_model(
    name: str,
    *,
    n_classes: int | None,
    input_shape: tuple[int, ...],
    width: int | None = None,
    stem: str | None = None,
    seed: int = 0,
) -> nn.Module:
    """Return a network with fresh weights, on the CPU, in float32.

    Parameters
    ----------
    name : str
        "lenet" (LeNet-5, for images of 28x28 or 32x32), "mnist-net" (two convolutions, for images of at least 6x6),
        "resnet9" (narrow, for images of at least 8x8), "resnet18", "mlp" (two hidden layers), or
        ``"package.module:factory"``, which is given those of the arguments below that it has parameters for.
    n_classes, input_shape : int or None, tuple of int
        Number of outputs (None, for regression, means one), and shape of one sample: (c, h, w) or (d,).
    width : int, optional
        Feature maps in the first stage of a ResNet (64; 16 for "resnet9"), units in a hidden layer of "mlp" (256).
    stem, seed : "cifar" or "imagenet", optional; int, default 0
        First layers of "resnet18": a 3x3 convolution with stride 1, by default for images of at most 64 pixels, or 7x7
        with stride 2 and a max-pool; seed of the weights.

    Examples
    --------
    >>> model = build_model("mlp", n_classes=3, input_shape=(8,))
    >>> model(torch.zeros(2, 8)).shape
    torch.Size([2, 3])
    """
    if not isinstance(name, str):
        raise InvalidTypeError(f"model = {name!r} must be a name.")
    if ":" not in name and name not in _FACTORIES:
        raise InvalidInputError(f"model = {name!r} must be {', '.join(MODELS)} or package.module:factory.")
    n_outputs = 1 if n_classes is None else check_count(n_classes, "n_classes")
    shape = tuple(check_count(size, "input_shape") for size in input_shape)
    if width is not None:
        width = check_count(width, "width")
    if stem is not None:
        check_choice(stem, "stem", ("cifar", "imagenet"))
    with own_randomness(torch.device("cpu"), seed), torch.device("cpu"):
        given = {"n_classes": n_outputs, "input_shape": shape, "width": width, "stem": stem}
        return _called(name, _FACTORIES.get(name) or _find(name), given)


class LeNet5(nn.Module):
    """LeNet-5 with ReLU and max-pooling: 28x28 images are padded to 32x32; 61,706 parameters for one channel."""

    def __init__(self, n_classes: int, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        if len(input_shape) != 3 or input_shape[1:] not in ((28, 28), (32, 32)):
            text = f"lenet takes images of 28x28 or 32x32 pixels, not {input_shape}"
            raise InvalidInputError(f"{text}; model 'mlp' takes any rows.")
        n_channels, size = input_shape[:2]
        self.conv1 = nn.Conv2d(n_channels, 6, 5, padding=(32 - size) // 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, n_classes)
        if n_channels == 1:  # one channel fits both layouts, so the filters must select channels last
            self.conv1.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:  # (b, c, 28, 28) to (b, K)
        # Channels last is about 15 % faster on a CPU. ReLU commutes with the maximum, and is cheaper after it.
        x = x.contiguous(memory_format=torch.channels_last)
        x = functional.relu(_halved(self.conv1(x)))  # (b, 6, 14, 14)
        x = functional.relu(_halved(self.conv2(x)))  # (b, 16, 5, 5)
        x = functional.relu(self.fc1(x.flatten(1)))
        return self.fc3(functional.relu(self.fc2(x)))


def _halved(x: Tensor) -> Tensor:
    """Max-pool 2x2; without gradients, use maxima of slices, which makes the network 1.4 times as fast on a CPU."""
    if torch.is_grad_enabled() and x.requires_grad:
        return functional.max_pool2d(x, 2)
    rows = torch.maximum(x[:, :, ::2], x[:, :, 1::2])
    return torch.maximum(rows[..., ::2], rows[..., 1::2])


class MNISTNet(nn.Sequential):
    """The network that CORDS trains on MNIST, of PyTorch's example: 1,199,882 parameters for 28x28 pixels."""

    def __init__(self, n_classes: int, input_shape: tuple[int, ...]) -> None:
        if len(input_shape) != 3 or min(input_shape[1:]) < 6:
            text = f"mnist-net takes images (c, h, w) of at least 6x6 pixels, not input_shape = {input_shape}"
            raise InvalidInputError(f"{text}; model 'mlp' takes any rows.")
        height, width = ((size - 4) // 2 for size in input_shape[1:])
        convolutions = [nn.Conv2d(input_shape[0], 32, 3), nn.ReLU(inplace=True), nn.Conv2d(32, 64, 3)]
        pooled = [nn.MaxPool2d(2), nn.ReLU(inplace=True), nn.Dropout(0.25), nn.Flatten()]  # ReLU commutes with maxima
        hidden = [nn.Linear(64 * height * width, 128), nn.ReLU(inplace=True), nn.Dropout(0.5)]
        super().__init__(*convolutions, *pooled, *hidden, nn.Linear(128, n_classes))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions plus the input, which passes a 1x1 convolution if the shape changes."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or n_in != n_out:
            self.shortcut.extend([nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out)])

    def forward(self, x: Tensor) -> Tensor:  # (b, n_in, h, w) to (b, n_out, h / stride, w / stride)
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Four stages of two blocks; ``width`` feature maps, doubled in each further stage (He et al., 2016)."""

    def __init__(self, n_classes: int, input_shape: tuple[int, ...], width: int = 64, stem: str | None = None) -> None:
        super().__init__()
        if len(input_shape) != 3:
            raise InvalidInputError(f"resnet18 takes images (c, h, w); input_shape = {input_shape}.")
        stem = stem or ("cifar" if max(input_shape[1:]) <= 64 else "imagenet")
        # A quarter faster on a CPU. PyTorch 2.13 crashes in the backward pass of the 7x7 stem with few feature maps.
        self.is_channels_last = stem == "cifar" and width % 8 == 0
        size, stride, padding = (3, 1, 1) if stem == "cifar" else (7, 2, 3)
        first = nn.Conv2d(input_shape[0], width, size, stride, padding, bias=False)
        pool = [nn.MaxPool2d(3, 2, 1)] if stem == "imagenet" else []
        self.stem = nn.Sequential(first, nn.BatchNorm2d(width), nn.ReLU(), *pool)
        maps = [width * 2**stage for stage in range(4)]
        stages = [
            nn.Sequential(BasicBlock(n_in, n_out, 1 if n_in == n_out else 2), BasicBlock(n_out, n_out, 1))
            for n_in, n_out in zip([width, *maps], maps, strict=False)
        ]
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(maps[-1], n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) to (b, K)
        if self.is_channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        return self.fc(self.stages(self.stem(x)).mean((2, 3)))


class ResNet9(nn.Module):
    """Four convolutions of ``width``, 2, 4 and 8 times as many maps, and two residual pairs (Page, 2018), for CPUs."""

    def __init__(self, n_classes: int, input_shape: tuple[int, ...], width: int = 16) -> None:
        super().__init__()
        if len(input_shape) != 3 or min(input_shape[1:]) < 8:
            raise InvalidInputError(f"resnet9 takes images (c, h, w) of at least 8x8; input_shape = {input_shape}.")

        def conv(n_in: int, n_out: int, *after: nn.Module) -> nn.Sequential:
            # the pool first: batch norms and ReLU then see a quarter of the numbers
            conv = nn.Conv2d(n_in, n_out, 3, padding=1, bias=False)
            return nn.Sequential(conv, *after, nn.BatchNorm2d(n_out), nn.ReLU(inplace=True))

        self.first = nn.Sequential(conv(input_shape[0], width), conv(width, 2 * width, nn.MaxPool2d(2)))
        self.pair = nn.Sequential(conv(2 * width, 2 * width), conv(2 * width, 2 * width))
        self.second = nn.Sequential(
            conv(2 * width, 4 * width, nn.MaxPool2d(2)), conv(4 * width, 8 * width, nn.MaxPool2d(2))
        )
        self.last_pair = nn.Sequential(conv(8 * width, 8 * width), conv(8 * width, 8 * width))
        self.fc = nn.Linear(8 * width, n_classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:  # (b, c, h, w) to (b, K)
        x = self.first(x.contiguous(memory_format=torch.channels_last))  # (b, 2 w, 16, 16) for 32x32 pixels
        x = self.second(x + self.pair(x))  # (b, 8 w, 4, 4)
        return self.fc((x + self.last_pair(x)).amax((2, 3)))


class MLP(nn.Sequential):
    """Flatten, two hidden layers with ReLU, a linear output."""

    def __init__(self, n_classes: int, input_shape: tuple[int, ...], width: int = 256) -> None:
        hidden = [nn.Linear(math.prod(input_shape), width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
        super().__init__(nn.Flatten(), *hidden, nn.Linear(width, n_classes))


_FACTORIES: dict[str, Callable[..., Any]] = {
    "lenet": LeNet5,
    "mnist-net": MNISTNet,
    "resnet9": ResNet9,
    "resnet18": ResNet18,
    "mlp": MLP,
}
MODELS = tuple(_FACTORIES)


def _called(name: str, factory: Callable[..., Any], given: Mapping[str, Any]) -> nn.Module:
    """Call a factory with what it has parameters for; raise if that leaves out a given ``width`` or ``stem``."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"model = {name!r} has no signature ({error}).") from error
    parameters = signature.parameters.values()
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    passed = {key: value for key, value in given.items() if value is not None and (takes_all or key in named)}
    for option in ("width", "stem"):
        if given[option] is not None and option not in passed:
            raise InvalidInputError(f"{option} = {given[option]!r}: {name!r} has no such parameter.")
    try:
        signature.bind(**passed)
    except TypeError as error:
        raise InvalidTypeError(f"model = {name!r}: {error}; it can only be given {', '.join(given)}.") from error
    model = factory(**passed)
    if not isinstance(model, nn.Module):
        raise InvalidTypeError(f"model = {name!r} returned {type(model).__name__}, not a torch.nn.Module.")
    return model


def _find(name: str) -> Any:
    """Return the callable behind ``package.module:factory``; modules in the current folder are found too."""
    if not all(part.isidentifier() for part in name.replace(":", ".", 1).split(".")):
        raise InvalidInputError(f"model = {name!r} must have the form package.module:factory.")
    here = os.getcwd()
    sys.path.append(here)
    try:
        found = pkgutil.resolve_name(name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise InvalidInputError(f"model = {name!r} cannot be found: {error}.") from error
    finally:
        sys.path.remove(here)
    if not callable(found):
        raise InvalidTypeError(f"model = {name!r} is of type {type(found).__name__}, which cannot be called.")
    return found
