"""Downloads: cached files, complete or absent, and errors that name the expected location."""

import http.server
import io
import threading
import urllib.error

import h5py
import numpy as np
import pytest

import kinnor as nn
from kinnor.utils.data_source import DataError
from kinnor.utils.data_source_loader import FileReader, ResourceFileReader
from kinnor.utils.download import DownloadError, download, get_data_home


@pytest.fixture
def home(monkeypatch, tmp_path):
    """Sets the folder of downloads to a temporary one, and returns it."""
    monkeypatch.setenv("NNABLA_DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


class Server(http.server.BaseHTTPRequestHandler):
    """Serves files of 1,000 bytes. All but `whole.bin` break off after 500, and `none.bin` does not exist."""

    asked = 0
    """Number of requests so far."""

    def do_GET(self):
        """Answers a request."""
        type(self).asked += 1
        if self.path == "/none.bin":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(bytes(1000 if self.path == "/whole.bin" else 500))

    def log_message(self, *args):
        """Prints nothing."""


@pytest.fixture
def server():
    """Runs the server in a thread, and returns its address."""
    Server.asked = 0
    with http.server.HTTPServer(("127.0.0.1", 0), Server) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()
        thread.join()


def test_a_file_is_read_once(home, server):
    """A second download of a file reads the local copy, unless overwriting is allowed."""
    for _ in range(2):
        with download(f"{server}/whole.bin") as file:
            assert len(file.read()) == 1000
    assert Server.asked == 1
    assert [path.name for path in home.iterdir()] == ["whole.bin"]
    assert download(f"{server}/whole.bin", open_file=False, allow_overwrite=True) is None
    assert Server.asked == 2


def test_a_partial_download_leaves_no_file(home, server):
    """A failed download raises, and leaves no file."""
    with pytest.raises(DownloadError, match="500"):
        download(f"{server}/part.bin")
    with pytest.raises(DownloadError, match="Not Found"):
        download(f"{server}/none.bin")
    assert not list(home.iterdir())


def test_local_files(home, tmp_path):
    """URLs of local files are downloaded too."""
    source = tmp_path / "a name.txt"
    source.write_text("data")
    with download(source.as_uri()) as file:
        assert file.read() == b"data"
    download(source.as_uri(), tmp_path / "new/b.txt", open_file=False)
    assert (tmp_path / "new/b.txt").read_text() == "data"
    assert (home / "a name.txt").exists()
    assert get_data_home() == str(home)


def test_without_a_network(home):
    """A failed download says where to put the file. A file that is there needs no network."""
    with pytest.raises(DownloadError, match=r"http://127.0.0.1:9/a.bin .*home/a.bin yourself.*refused") as caught:
        download("http://127.0.0.1:9/a.bin")
    assert isinstance(caught.value, nn.Error)
    assert isinstance(caught.value, urllib.error.URLError)
    (home / "a.bin").write_text("by hand")
    with download("http://127.0.0.1:9/a.bin") as file:
        assert file.read() == b"by hand"
    for bad in ("a.bin", "http://127.0.0.1:9/", ""):
        with pytest.raises(nn.ArgumentError, match="expected the URL of a file"):
            download(bad)


def test_readers_of_files(tmp_path, server):
    """`FileReader` and `ResourceFileReader` open paths, URLs and file objects."""
    (tmp_path / "a.csv").write_text("1,2")
    for base in (str(tmp_path / "a.csv"), (tmp_path / "a.csv").as_uri()):
        with FileReader(base).open(textmode=True) as file:
            assert file.read() == "1,2"
    with FileReader(f"{server}/a.csv").open("whole.bin") as file:
        assert len(file.read()) == 1000
    with ResourceFileReader(tmp_path / "a.csv").open() as file:
        assert (file.ext, file.read()) == (".csv", b"1,2")
    with ResourceFileReader(io.BytesIO(b"3")).open() as file:
        assert (file.ext, file.read()) == ("", b"3")
    with (tmp_path / "a.csv").open() as text:
        for bad in (text, io.StringIO("1,2"), 3, None):
            with pytest.raises(DataError, match="expected a path or a file open for reading bytes"):
                ResourceFileReader(bad)
    with h5py.File(tmp_path / "c.h5", "w") as cache:
        cache["x"] = np.arange(3)
    with FileReader(tmp_path).open_cache("c.h5") as cache:
        assert cache["x"][:].tolist() == [0, 1, 2]
    for call in (lambda: FileReader("s3://bucket/a.csv"), FileReader(f"{server}/a.csv").listdir):
        with pytest.raises(nn.UnsupportedError):
            call()
