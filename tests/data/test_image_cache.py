"""Images that are decoded once: the same pixels, from one file that is whole, and that follows the images."""

import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from coresift import InvalidInputError
from coresift.data import LazyDataset, image_cache, load_dataset, splits
from coresift.data.image_cache import cached, pixels_of
from coresift.training import build_model, train


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(8):
            shape = (20 + i, 24, 3)
            smooth = Image.fromarray(rng.integers(0, 255, (3, 3, 3), dtype=np.uint8)).resize(shape[1::-1])
            smooth.save(tmp_path / "images" / name / f"{i}.png")
    (tmp_path / "cache").mkdir()
    return tmp_path


def test_items_are_equal_and_decoded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = load_dataset(folder / "images", image_size=16)
    fast = load_dataset(folder / "images", image_size=16, cache=folder / "cache")
    names = sorted(path.name for path in (folder / "cache").iterdir())
    assert len(names) == 2  # one for each part, and no draft
    monkeypatch.setattr(splits, "decode", None)  # nothing is decoded any more
    monkeypatch.setattr(image_cache, "decode", None)
    again = load_dataset(folder / "images", image_size=16, cache=folder / "cache")
    assert sorted(path.name for path in (folder / "cache").iterdir()) == names
    monkeypatch.undo()
    for part, kept in ((plain.train, again.train), (plain.test, fast.test)):
        kept = pickle.loads(pickle.dumps(kept))  # as sent to a worker
        for i in range(len(part)):
            np.testing.assert_array_equal(kept[i][0], part[i][0])
            assert kept[i][1] == part[i][1]
        order = np.array([3, 0])
        np.testing.assert_array_equal(kept.take(order)[0][0], part[3][0])


def test_a_run_from_the_cache_is_the_same_run(folder: Path) -> None:
    found = []
    for cache in (None, folder / "cache"):
        data = load_dataset(folder / "images", image_size=16, cache=cache)
        model = build_model("mlp", n_classes=2, input_shape=data.input_shape, width=4)
        found.append(train(model, data, "random", 0.5, epochs=2, batch_size=4).test)
    assert found[0] == found[1]


def test_random_parts_are_parts_of_the_square_in_the_middle(folder: Path) -> None:
    paths = sorted(map(str, (folder / "images" / "cat").iterdir()))
    plain = LazyDataset(paths, np.zeros(len(paths), np.int64), 14, share=0.875)
    kept = cached(plain, folder / "cache")
    assert pixels_of(str(kept.cache)).shape == (8, 3, 16, 16)  # two pixels more, of which 0.875 are 14
    for i in range(len(paths)):
        assert np.abs(kept[i][0].astype(int) - plain[i][0].astype(int)).mean() < 4
    moved = replace(kept, crop_seed=5)
    assert moved[0][0].shape == (3, 14, 14)
    np.testing.assert_array_equal(moved[0][0], replace(kept, crop_seed=5)[0][0])
    assert any(not np.array_equal(moved[i][0], kept[i][0]) for i in range(8))


def test_changed_images_are_decoded_again(folder: Path) -> None:
    before = load_dataset(folder / "images", image_size=16, cache=folder / "cache").train
    Image.new("RGB", (30, 30), (1, 2, 3)).save(before.paths[0])
    after = load_dataset(folder / "images", image_size=16, cache=folder / "cache").train
    assert after[0][0][:, 0, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize("damage", ["cut", "shape", "text"])
def test_a_damaged_cache_is_named(folder: Path, damage: str) -> None:
    kept = load_dataset(folder / "images", image_size=16, cache=folder / "cache").train
    path = Path(str(kept.cache))
    if damage == "cut":
        os.truncate(path, path.stat().st_size // 2)
    elif damage == "shape":
        np.save(path, np.zeros((3, 3, 16, 16), np.uint8))
    else:
        path.write_text("not an array")
    pixels_of.cache_clear()
    with pytest.raises(InvalidInputError, match=r"coresift-images-.*\.npy.*delete it"):
        load_dataset(folder / "images", image_size=16, cache=folder / "cache")


def test_what_cannot_be_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match="no such folder"):
        load_dataset(folder / "images", cache=folder / "nowhere")
    with pytest.raises(InvalidInputError, match="a cache is for image files"):
        load_dataset("digits", cache=folder / "cache")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(image_cache, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        load_dataset(folder / "images", cache=folder / "cache")
    assert not list((folder / "cache").iterdir())
