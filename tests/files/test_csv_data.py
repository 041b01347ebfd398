"""Data sets from CSV files and from folders of arrays."""

import numpy as np
import pytest

from kinnor.files.images import ImageError, read_image, resized, write_image
from kinnor.utils.cache_data_source import write_cache
from kinnor.utils.data_iterator import data_iterator_cache, data_iterator_csv_dataset
from kinnor.utils.data_source import DataError
from kinnor.utils.data_source_implements import CacheDataSource, CsvDataSource
from kinnor.utils.data_source_loader import load, load_csv, load_image

IMAGES = np.arange(5 * 4 * 6, dtype=np.uint8).reshape(5, 4, 6) * 2
"""Five grey images of height 4 and width 6."""


@pytest.fixture
def folder(tmp_path):
    """Returns a temporary folder with images, an array file, and a CSV file that lists them."""
    for i, image in enumerate(IMAGES):
        write_image(tmp_path / f"{i}.png", image)
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    rows = "".join(f"{i}.png,{i},{i + 0.5},{-i},skipped\n" for i in range(5))
    (tmp_path / "set.csv").write_text("\ufeffx:image,y:label,v__0:a,v__1:b,#note\n" + rows + "\n", encoding="utf-8")
    return tmp_path


def test_cells_are_numbers_vectors_and_files(folder):
    """Cells of a CSV file are read as numbers, vectors, images and arrays."""
    source = CsvDataSource(folder / "set.csv", normalize=True)
    assert (source.size, list(source.variables)) == (5, ["x", "y", "v"])
    x, y, v = source.read(3)
    np.testing.assert_allclose(x, IMAGES[3:4] / 255, rtol=1e-6)
    assert (y.tolist(), v.tolist()) == ([3.0], [3.5, -3.0])
    assert CsvDataSource(folder / "set.csv").read(0)[0].dtype == np.uint8


def test_an_order_that_is_set_is_read(folder):
    """Examples come in the order that a program sets. Invalid orders are refused."""
    source = CsvDataSource(folder / "set.csv")
    source._order = [3, 1, 4, 0, 2]
    assert source._order == source.order.tolist() == [3, 1, 4, 0, 2]
    assert [int(source.next()[1][0]) for _ in range(5)] == [3, 1, 4, 0, 2]
    for bad in ([0, 1], [0, 1, 2, 3, 5], [-1, 0, 1, 2, 3], [0.0, 1, 2, 3, 4]):
        with pytest.raises(DataError, match="expected 5 numbers of examples"):
            source._order = bad
    assert source._order == [3, 1, 4, 0, 2]


def test_batches_of_each_kind(folder):
    """Batches of a CSV file are shuffled in each epoch. A cache of the file gives the same examples."""
    with data_iterator_csv_dataset(folder / "set.csv", 5, shuffle=True) as batches:
        x, y, _ = batches.next()
        again = batches.next()[1]
    assert sorted(y.ravel()) == sorted(again.ravel()) == [0, 1, 2, 3, 4]
    assert y.tolist() != again.tolist()
    np.testing.assert_allclose(x[0], IMAGES[int(y[0, 0])][None] / 255, rtol=1e-6)
    write_cache(CsvDataSource(folder / "set.csv"), folder / "set.cache")
    with data_iterator_cache(folder / "set.cache", 5) as batches:
        x, y, v = batches.next()
    np.testing.assert_allclose(x, IMAGES[:, None] / 255, rtol=1e-6)
    assert (y.shape, v.shape) == ((5, 1), (5, 2))
    assert CacheDataSource(folder / "set.cache")._get_data(0)[0].dtype == np.uint8


@pytest.mark.parametrize(
    "text", ["", "\n", "x,y\n1\n", "x,y\n1,2,3\n", "x\nmissing.png\n", "x\nset.csv\n", "x\nset.exe\n", "x\n\0\n"]
)
def test_malformed_files_are_refused(folder, text):
    """CSV files that are damaged, or name files that cannot be read, raise DataError."""
    (folder / "bad.csv").write_text(text)
    with pytest.raises(DataError, match="expected"):
        CsvDataSource(folder / "bad.csv").read(0)


def test_names_that_leave_the_folder_of_a_cache_are_refused(folder):
    write_cache(CsvDataSource(folder / "set.csv"), folder / "set.cache")
    index = folder / "set.cache/cache_index.csv"
    for name in ("../a.npy", "b/a.npy", str(folder / "a.npy"), str(folder / "set.cache/b/../../a.npy")):
        index.write_text(f"{name},2\n")
        with pytest.raises(DataError, match="expected the name of a file"):
            CacheDataSource(folder / "set.cache")


def test_files_of_a_cache_may_be_named_by_whole_paths(folder):
    write_cache(CsvDataSource(folder / "set.csv"), folder / "set.cache")
    expected = [CacheDataSource(folder / "set.cache")._get_data(i) for i in range(5)]
    index = folder / "set.cache/cache_index.csv"
    index.write_text("".join(f"{folder / 'set.cache'}/{line}\n" for line in index.read_text().splitlines()))
    source = CacheDataSource(folder / "set.cache")
    for i, values in enumerate(expected):
        for one, other in zip(source._get_data(i), values, strict=True):
            np.testing.assert_array_equal(one, other)


def test_pickles_are_not_loaded(folder):
    """A pickled object in an `.npy` file of a data set is refused."""
    np.save(folder / "p.npy", np.array([{}], object), allow_pickle=True)
    (folder / "bad.csv").write_text("x\np.npy\n")
    with pytest.raises(DataError, match="expected an array of numbers"):
        CsvDataSource(folder / "bad.csv").read(0)


def test_images_have_the_shape_that_is_asked_for(folder):
    assert load_image(folder / "0.png", (1, 8, 3)).shape == (1, 8, 3)
    with pytest.raises(DataError, match="expected 3 colours"):
        load_image(folder / "0.png", (3, 8, 3))
    with pytest.raises(ImageError, match="expected an image"):
        read_image(folder / "set.csv")
    assert resized(np.ones((4, 6, 3), np.uint16) * 700, 2, 3).tolist() == [[[700] * 3] * 3] * 2
    with pytest.raises(DataError, match="expected one of the extensions"):
        load(".exe")
    with (folder / "set.csv").open("rb") as file, pytest.raises(DataError, match="expected a table"):
        load_csv(file)


@pytest.mark.parametrize("header", ["x,x", "x:a,x:b", "x:a,x:a", "v__0,v__0", "v__0:a,v__1,v__0:b", "v,v__0", "v__0,v"])
def test_a_column_that_is_there_twice(tmp_path, header):
    """A header that names a column twice is refused."""
    row = ",".join("1" for _ in header.split(","))
    (tmp_path / "set.csv").write_text(f"{header}\n{row}\n")
    with pytest.raises(DataError, match="expected a column for each variable"):
        CsvDataSource(tmp_path / "set.csv")


def test_headers_are_names(tmp_path):
    """A header of numbers, and a file without rows, are refused."""
    path = tmp_path / "set.csv"
    for header in ("1,2,0", "0.5, 1e3,-1", "#id,3,4"):
        path.write_text(f"{header}\n3,4,1\n5,6,1\n")
        with pytest.raises(DataError, match="expected a header with names such as x__0,x__1,y, got numbers"):
            CsvDataSource(path)
    path.write_text("x,y\n")
    with pytest.raises(DataError, match="expected rows below the header, got none"):
        CsvDataSource(path)
    path.write_text("x__0, x__1 , y\n1, 2, 0\n")
    source = CsvDataSource(path)
    assert source.variables == ["x", "y"]
    assert [each.tolist() for each in source.next()] == [[1.0, 2.0], [0.0]]
