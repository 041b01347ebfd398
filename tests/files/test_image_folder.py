"""Images in folders, examples that a function maps, and threads that read ahead."""

import threading
from time import sleep

import numpy as np
import pytest

from kinnor.data.csv_data_source import CsvDataSource
from kinnor.data.data_iterator import data_iterator, data_iterator_csv_dataset, data_iterator_image_folder
from kinnor.data.data_source import DataError, DataSource
from kinnor.data.data_source_implements import DataSourceWithWorkers, ImageFolderDataSource, SimpleDataSource
from kinnor.data.data_source_loader import load_image, load_image_imread
from kinnor.files.images import ImageError, write_image


@pytest.fixture
def folder(tmp_path):
    """Returns a folder with three images of cats, two of dogs, and other files."""
    for name, count in (("dog", 2), ("cat", 3), (".hidden", 1)):
        (tmp_path / name / "more").mkdir(parents=True)
        for i in range(count):
            path = tmp_path / name / ("more" if i == 1 else ".") / f"{i}.PNG"
            write_image(path, np.full((6, 8, 3), 10 * i + (name == "dog"), np.uint8))
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "readme.txt").write_text("no class")
    return tmp_path


def test_a_folder_is_a_class(folder):
    """Labels follow the sorted names of folders. Hidden folders and other files are skipped."""
    source = ImageFolderDataSource(folder)
    assert (source.size, source.classes, source.labels.tolist()) == (5, ["cat", "dog"], [0, 0, 0, 1, 1])
    image, label = source.read(3)
    assert (image.shape, image.dtype, label.tolist()) == ((3, 6, 8), np.float32, [1])
    np.testing.assert_allclose(image, 1 / 255)
    grey = ImageFolderDataSource(folder, shape=(1, 3, 4)).read(0)[0]
    assert (grey.shape, grey.dtype) == ((1, 3, 4), np.float32)


def test_batches_of_a_folder(folder):
    """Batches of a shuffled folder have all images, in the order of a plain source."""
    with data_iterator_image_folder(folder, 5, shape=(3, 4, 4), shuffle=True, n_workers=3) as batches:
        epochs = [batches.next() for _ in range(4)]
    assert all(x.shape == (5, 3, 4, 4) and sorted(y.ravel()) == [0, 0, 0, 1, 1] for x, y in epochs)
    orders = {tuple(np.round(x[:, 0, 0, 0] * 255).astype(int)) for x, _ in epochs}
    assert len(orders) > 1, "each epoch has an order of its own"
    plain = ImageFolderDataSource(folder, shape=(3, 4, 4), shuffle=True)
    np.testing.assert_array_equal(epochs[0][0], [plain.next()[0] for _ in range(5)])


def test_images_are_transformed(folder):
    """`transform` is applied to each image, and must be callable."""
    with data_iterator_image_folder(folder, 2, transform=lambda x: x[:1, ::-1] + 1) as batches:
        x, y = batches.next()
    assert x.shape == (2, 1, 6, 8) and x.min() >= 1 and y.shape == (2, 1)
    with pytest.raises(TypeError, match="transform"):
        data_iterator_image_folder(folder, 2, transform=3)


def test_folders_without_images_are_refused(tmp_path):
    """Missing folders, empty folders and damaged images raise typed errors."""
    (tmp_path / "cat").mkdir()
    with pytest.raises(DataError, match=r"expected folders of images in .*, one for each class"):
        ImageFolderDataSource(tmp_path)
    with pytest.raises(OSError, match="nowhere"):
        ImageFolderDataSource(tmp_path / "nowhere")
    (tmp_path / "cat" / "1.png").write_text("no image")
    with pytest.raises(ValueError, match="expected an image"):
        ImageFolderDataSource(tmp_path).next()


def numbers(n=40, delay=0.0, seen=None, shuffle=False):
    """Returns a source of `n` pairs (i, i squared). Appends each index and the reading thread to `seen`."""

    def read(i):
        """Returns (i, i squared) after a delay. Notes the index and the thread."""
        if seen is not None:
            seen.append((i, threading.get_ident()))
        sleep(delay)
        return i, i * i

    return SimpleDataSource(read, n, shuffle)


@pytest.mark.parametrize("shuffle", [False, True])
def test_workers_keep_the_order(shuffle):
    """Worker threads yield the batches of an iterator without workers."""
    seen = []
    with (
        data_iterator(numbers(shuffle=shuffle), 7, with_memory_cache=False) as one,
        data_iterator(numbers(40, 0.001, seen, shuffle), 7, with_memory_cache=False, n_workers=4) as other,
    ):
        for _ in range(15):
            for x, y in zip(one.next(), other.next(), strict=True):
                np.testing.assert_array_equal(x, y)
            assert (one.epoch, one.position) == (other.epoch, other.position)
    assert len({thread for _, thread in seen}) > 2


def test_workers_go_on_where_another_iterator_was():
    def iterator():
        """Returns an iterator over shuffled numbers that two workers read."""
        return data_iterator(numbers(shuffle=True), 7, with_memory_cache=False, n_workers=2)

    with iterator() as one, iterator() as other:
        for _ in range(8):
            one.next()
        other.set_state(one.state())
        np.testing.assert_array_equal(one.next(), other.next())
    with iterator() as batches, batches.shard(0, 2) as one, batches.shard(1, 2) as other:
        found = np.concatenate([share.next()[0] for share in (one, other) for _ in range(2)])
        assert len(set(found)) == 28


def test_what_fails_in_a_worker_is_raised_at_its_example():
    """An error in a worker is raised when its example is due, and no example is lost."""
    fails = [True]

    def read(i):
        """Returns the index; fails at 5 while `fails[0]` is true."""
        if i == 5 and fails[0]:
            raise OSError("gone")
        return (i,)

    with DataSourceWithWorkers(SimpleDataSource(read, 10), 2) as source:
        assert [source.next()[0] for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(OSError, match="gone"):
            source.next()
        fails[0] = False
        assert [source.next()[0] for _ in range(5)] == [5, 6, 7, 8, 9]
    source.close()
    with pytest.raises(DataError, match="got a closed one"):
        source.next()


def test_sources_that_workers_cannot_read_are_refused():
    class SourceWithoutEpochs(DataSource):
        """A shuffled source that does not tell epochs apart."""

        def _get_data(self, position):
            """Returns the position as the only value of the example."""
            return (position,)

    with pytest.raises(DataError, match="expected a source that defines _get_data_of_generation"):
        DataSourceWithWorkers(SourceWithoutEpochs(shuffle=True), 2)
    with pytest.raises(DataError, match="n_workers"):
        DataSourceWithWorkers(numbers(), 0)


def test_examples_are_mapped():
    """`map` applies a function to each example of a source."""
    source = numbers(10, shuffle=True).map(lambda x, y: (x, y, x + y))
    assert (source.size, list(source.variables), source.shuffle) == (10, ["x0", "x1", "x2"], True)
    with data_iterator(source, 5, with_memory_cache=False, n_workers=2) as batches:
        epochs = [np.concatenate([batches.next()[2] for _ in range(2)]) for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == [i + i * i for i in range(10)]
    assert (epochs[0] != epochs[1]).any()
    with pytest.raises(DataError, match="expected a tuple of arrays, got int"):
        numbers().map(lambda x, y: x)
    assert list(numbers().map(lambda x, y: (y, x)).variables) == ["x0", "x1"]


def test_csv_files_are_read_by_workers(folder):
    """A CSV data set is read by worker threads in order."""
    rows = [f"cat/{name},{i}" for i, name in enumerate(("0.PNG", "more/1.PNG", "2.PNG"))]
    (folder / "list.csv").write_text("\n".join(["x:image,y", *rows]))
    with data_iterator_csv_dataset(folder / "list.csv", 3, n_workers=2) as batches:
        x, y = batches.next()
    np.testing.assert_array_equal(y.ravel(), [0, 1, 2])
    np.testing.assert_array_equal(
        x, np.stack([CsvDataSource(folder / "list.csv", normalize=True).read(i)[0] for i in range(3)])
    )


GREY = np.random.RandomState(0).randint(0, 255, (4, 5), np.uint8)
COLOURS = np.stack([GREY, GREY // 2, GREY // 4], -1)
ALPHA = np.full_like(GREY, 99)
MODES = {
    "grey.png": (GREY, None),
    "grey_alpha.png": (np.stack([GREY, ALPHA], -1), None),
    "rgb.png": (COLOURS, None),
    "rgba.png": (np.concatenate([COLOURS, ALPHA[..., None]], -1), None),
    "bits.png": (GREY, "1"),
    "palette.png": (COLOURS, "P"),
    "grey16.png": (GREY.astype(np.uint16) * 257, None),
    "cmyk.tif": (COLOURS, "CMYK"),
    "ycbcr.tif": (COLOURS, "YCbCr"),
}


@pytest.mark.parametrize("name", MODES)
def test_images_of_all_modes_have_their_colours(tmp_path, name):
    """With and without a shape, in folders and from files, in RGB."""
    image = pytest.importorskip("PIL.Image")
    values, mode = MODES[name]
    made = image.fromarray(values) if mode is None else image.fromarray(values).convert(mode)
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / name
    made.save(path)
    plain = np.asarray((image.open(path) if values.dtype == np.uint8 else image.fromarray(GREY)).convert("RGB"))
    expected = plain.transpose(2, 0, 1) / 255
    for shape in (None, (3, 4, 5)):
        x, _ = ImageFolderDataSource(tmp_path, shape).read(0)
        np.testing.assert_allclose(x, expected, atol=1e-6)
        x = load_image_imread(path, shape)
        np.testing.assert_allclose(x[:3] if len(x) > 2 else np.repeat(x[:1], 3, 0), expected, atol=1e-6)


def test_fractions_are_not_cut_off(tmp_path):
    """An image of numbers from 0 to 1 would be black in 8 bits."""
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "f.tif"
    image.fromarray(np.full((2, 3), 0.75, np.float32)).save(path)
    with pytest.raises(ImageError, match=r"got fractions in .*f\.tif"):
        load_image_imread(path)
    assert load_image(path).tolist() == [[[0.75] * 3] * 2]


def test_hidden_images_are_left_out(folder):
    """Some systems write a hidden file beside each image, with the ending of images."""
    for name in ("cat/._0.png", "cat/.cache/0.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"no image")
    assert ImageFolderDataSource(folder).size == 5


def test_empty_cells_are_named(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,\n")
    with pytest.raises(DataError, match=r"got '' in row 1 of .*the cell is empty"):
        CsvDataSource(tmp_path / "t.csv").next()


class SourceWithoutEpochs(DataSource):
    """A source that does not distinguish epochs."""

    def __init__(self):
        super().__init__()
        self._size, self._variables = 6, ("x",)

    def _get_data(self, position):
        """Returns the position as the only value of the example."""
        return (np.array(position),)


@pytest.mark.parametrize(
    "wrapped",
    [lambda source: source, lambda source: source.map(lambda x: (x,)), lambda source: DataSourceWithWorkers(source, 2)],
    ids=["alone", "mapped", "workers"],
)
def test_wrapped_sources_are_in_the_epoch_of_their_source(wrapped):
    """A source without epochs stays in the first one. A reader that resumes moves to that epoch."""
    source, other = wrapped(SourceWithoutEpochs()), wrapped(SourceWithoutEpochs())
    for _ in range(2):
        assert [int(source.next()[0]) for _ in range(6)] == list(range(6))
        source.reset()
        source.apply_order()
    source.next()
    other.seek(source._generation, source.position)
    assert [int(other.next()[0]) for _ in range(5)] == [1, 2, 3, 4, 5]
    source.close()
    other.close()
