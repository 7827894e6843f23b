"""Batches at once against image by image, and what is uniform about it."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from coresift import InvalidInputError
from coresift.data import DatasetSplits
from coresift.data.splits import ArrayDataset
from coresift.training.feeds import feeds_of, normalize, random_crop_flip

torch.set_num_threads(1)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def one_by_one(x: torch.Tensor, seed: int, padding: int) -> torch.Tensor:
    """The same draws, carried out with slices on each image."""
    draws = generator(seed)
    b, c, h, w = x.shape
    top = torch.randint(0, 2 * padding + 1, (b, 1), generator=draws)
    left = torch.randint(0, 2 * padding + 1, (b, 1), generator=draws)
    mirror = torch.randint(0, 2, (b, 1), generator=draws)
    images = []
    for i in range(b):
        canvas = torch.zeros(c, h + 2 * padding, w + 2 * padding, dtype=x.dtype)
        canvas[:, padding : padding + h, padding : padding + w] = x[i]
        image = canvas[:, top[i, 0] : top[i, 0] + h, left[i, 0] : left[i, 0] + w]
        images.append(image.flip(2) if mirror[i, 0] else image)
    return torch.stack(images)


@given(
    b=st.integers(1, 6),
    c=st.sampled_from([1, 3]),
    h=st.integers(1, 9),
    w=st.integers(1, 9),
    padding=st.integers(0, 4),
    seed=st.integers(0, 1000),
    is_float=st.booleans(),
)
def test_a_batch_is_cropped_as_its_images_are(b, c, h, w, padding, seed, is_float) -> None:
    x = torch.randint(0, 256, (b, c, h, w), dtype=torch.uint8, generator=generator(seed + 1))
    x = x.float() if is_float else x
    before = x.clone()
    found = random_crop_flip(x, generator(seed), padding)
    assert found.dtype == x.dtype
    assert torch.equal(found, one_by_one(x, seed, padding))
    assert torch.equal(x, before)


def test_crops_and_mirrors_are_uniform_and_independent() -> None:
    n = 20_000
    x = torch.zeros(n, 1, 9, 11, dtype=torch.uint8)
    x[:, 0, 4, 5] = 1  # in the middle: no crop loses it
    x[:, 0, 4, 6] = 2  # on the right of it, on the left in mirror images; inside the image always
    found = random_crop_flip(x, generator()).numpy()[:, 0]
    image, row, column = np.nonzero(found == 1)
    assert len(image) == n
    mirrored = found[image, row, column - 1] == 2
    assert np.all(mirrored ^ (found[image, row, column + 1] == 2))
    observed = np.zeros((9, 9, 2))
    np.add.at(observed, (row, column - 1, mirrored.astype(int)), 1)
    expected = n / observed.size
    k = observed.size - 1  # mean of chi square; its variance is 2k: six deviations above are no accident
    limit = k + 6 * np.sqrt(2 * k)
    assert ((observed - expected) ** 2 / expected).sum() < limit
    observed[7] += observed[8]  # power: as if the last of the nine offsets were never drawn
    observed[8] = 0
    assert ((observed - expected) ** 2 / expected).sum() > limit


def test_the_generator_alone_decides() -> None:
    x = torch.arange(2 * 3 * 8 * 8, dtype=torch.float32).view(2, 3, 8, 8)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = random_crop_flip(x, generator(5))
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(2)
    assert torch.equal(first, random_crop_flip(x, generator(5)))
    assert not torch.equal(first, random_crop_flip(x, generator(6)))
    draws = generator(5)
    assert not torch.equal(random_crop_flip(x, draws), random_crop_flip(x, draws))


@given(data=st.data())
def test_normalising_is_the_formula(data) -> None:
    c = data.draw(st.sampled_from([1, 3]))
    mean = data.draw(st.lists(st.floats(0, 1), min_size=c, max_size=c))
    std = data.draw(st.lists(st.floats(0.1, 2), min_size=c, max_size=c))
    x = np.random.default_rng(0).integers(0, 256, (4, c, 3, 2), dtype=np.uint8)
    found = normalize(torch.from_numpy(x), mean, std)
    assert found.dtype == torch.float32
    for channel in range(c):
        np.testing.assert_allclose(
            found[:, channel], (x[:, channel] / 255 - mean[channel]) / std[channel], rtol=1e-5, atol=1e-5
        )


def test_floats_are_not_divided_by_255_and_rows_have_columns_for_channels() -> None:
    x = torch.tensor([[3.0, 10.0], [5.0, 30.0]])
    assert normalize(x, None, None) is x
    expected = torch.tensor([[1.0, -1.0], [2.0, 1.0]])
    assert torch.equal(normalize(x, (1.0, 20.0), (2.0, 10.0)), expected)
    grey = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    assert torch.equal(normalize(grey, None, None), torch.tensor([[[[0.0, 1.0]]]]))


@pytest.mark.parametrize(
    ("mean", "std", "complaint"),
    [
        ((0.5,), (0.5, 0.5, 0.5), "mean has 1 entries, but x has 3 channels"),
        ((0.5, 0.5, 0.5), (0.5,), "std has 1 entries, but x has 3 channels"),
        ((0.5, 0.5, 0.5), (0.5, 0.0, 0.5), "must be positive"),
        ((0.5, 0.5, 0.5), None, "both mean and std, or neither"),
    ],
)
def test_wrong_statistics_are_refused(mean, std, complaint: str) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        normalize(torch.zeros(2, 3, 4, 4), mean, std)


def test_augmentation_by_name() -> None:
    x = torch.rand(4, 3, 8, 8)
    data = ArrayDataset(x.numpy(), np.zeros(4, np.int64))

    def named(kind):
        shape = (3, 8, 8)
        splits = DatasetSplits("images", data, data, 2, "classification", shape, augmentation=kind)
        return feeds_of(splits, None, None, True, torch.device("cpu"), 0)[2]

    assert torch.equal(named("crop-flip")(x, generator(3)), random_crop_flip(x, generator(3)))
    assert named(None) is None
    assert named("resized-crop-flip")(x, generator()) is x
    with pytest.raises(InvalidInputError, match="'crop'"):
        named("crop")
