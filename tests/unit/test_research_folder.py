import os
import threading

import pytest

from outrider.examples.research import folder as folders
from outrider.examples.research import search as searching
from outrider.examples.research.folder import DocumentFolder, FolderError, open_folder
from outrider.examples.research.search import search, split


@pytest.fixture
def docs(tmp_path):
    root = tmp_path / "docs"
    (root / "inner").mkdir(parents=True)
    (tmp_path / "secret.md").write_text("the secret outside\n")
    (root / "guide.md").write_text("# Guide\n\nA heron stands still.\n")
    (root / "foo..bar.txt").write_text("two dots inside a name\n")
    (root / "inner" / "deep.rst").write_text("a kingfisher dives\n")
    return root


@pytest.fixture
def folder(docs):
    return open_folder(str(docs))


def names(folder):
    return [document.name for document in folder.listing().documents]


@pytest.mark.parametrize("name", ["guide.md", "foo..bar.txt", "inner/deep.rst", "inner//deep.rst"])
def test_a_document_inside_is_read(folder, name):
    assert folder.lines(name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "no usable path"),
        (".", "no document"),
        ("inner", "no document"),
        ("../secret.md", "leads out"),
        ("inner/../../secret.md", "leads out"),
        ("inner/../guide.md", "leads out"),
        ("..", "leads out"),
        (".hidden.md", "hidden"),
        ("/etc/passwd", "absolute"),
        ("//etc/passwd", "absolute"),
        ("guide.md\0.txt", "no usable path"),
        ("guide\n.md", "no usable path"),
        ("gu\x1bide.md", "no usable path"),
        ("gu\udcffide.md", "no usable path"),
        ("inner\\deep.rst", "no usable path"),
        ("a[1].md", "no usable path"),
        ("a" * 301, "no usable path"),
        ("a" * 290 + ".md", "does not exist"),
        ("absent.md", "does not exist"),
        ("guide.md/more.md", "does not exist"),
        ("guide.pdf", "does not exist"),
    ],
)
def test_a_bad_path_is_refused_with_a_reason(folder, name, why):
    with pytest.raises(FolderError, match=why) as caught:
        folder.lines(name)
    assert str(caught.value).isprintable()


def test_a_path_to_the_root_written_absolutely_is_refused_too(folder, docs):
    with pytest.raises(FolderError, match="absolute"):
        folder.lines(str(docs / "guide.md"))


def test_a_link_that_leads_out_is_refused_and_said(folder, docs, tmp_path):
    (docs / "out.md").symlink_to(tmp_path / "secret.md")
    (docs / "far.md").symlink_to("../secret.md")
    (docs / "house").symlink_to(tmp_path)
    for name in ("out.md", "far.md", "house/secret.md"):
        with pytest.raises(FolderError, match="leads out"):
            folder.lines(name)
    assert not {"out.md", "far.md", "house/secret.md"} & set(names(folder))
    assert len([reason for reason in folder.listing().skipped if "leads out" in reason]) == 2


def test_a_link_to_a_document_inside_is_that_document_once(folder, docs):
    (docs / "again.md").symlink_to("guide.md")
    assert folder.lines("again.md") == folder.lines("guide.md")
    assert "guide.md" in names(folder)
    assert "again.md" not in names(folder)


@pytest.mark.parametrize("target", ["nowhere.md", "loop.md"])
def test_a_link_that_leads_nowhere_is_refused(folder, docs, target):
    (docs / "loop.md").symlink_to(target)
    with pytest.raises(FolderError, match="does not exist"):
        folder.lines("loop.md")


def test_a_link_to_what_is_no_document_is_refused(folder, docs):
    (docs / ".env").write_text("PASSWORD=1")
    (docs / "env.md").symlink_to(".env")
    with pytest.raises(FolderError, match="no document"):
        folder.lines("env.md")


def test_a_link_put_in_after_the_check_is_not_followed(folder, docs, tmp_path, monkeypatch):
    checked = DocumentFolder.safe_path

    def swap(self, name):
        path = checked(self, name)
        path.unlink()
        path.symlink_to(tmp_path / "secret.md")
        return path

    monkeypatch.setattr(DocumentFolder, "safe_path", swap)
    with pytest.raises(FolderError, match="cannot be read"):
        folder.lines("guide.md")


def test_a_folder_swapped_for_a_link_after_the_check_is_not_followed(folder, docs, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "deep.rst").write_text("outside")
    checked = DocumentFolder.safe_path

    def swap(self, name):
        path = checked(self, name)
        path.unlink()
        path.parent.rmdir()
        path.parent.symlink_to(tmp_path / "elsewhere")
        return path

    monkeypatch.setattr(DocumentFolder, "safe_path", swap)
    with pytest.raises(FolderError, match="cannot be read"):
        folder.lines("inner/deep.rst")


def test_a_pipe_does_not_hang(folder, docs):
    os.mkfifo(docs / "pipe.md")
    with pytest.raises(FolderError, match="no document"):
        folder.lines("pipe.md")
    assert "pipe.md" not in names(folder)


def test_what_is_no_text_or_too_big_is_left_out_and_said(folder, docs, monkeypatch):
    monkeypatch.setattr(folders, "MAX_FILE_BYTES", 100)
    (docs / "latin.txt").write_bytes(b"caf\xe9")
    (docs / "binary.txt").write_bytes(b"a\0b")
    (docs / "big.txt").write_text("x" * 101)
    said = " ".join(search(folder, "heron").skipped)
    assert "'latin.txt' is not UTF-8" in said
    assert "'binary.txt' is binary" in said
    assert "'big.txt' has 101 bytes" in said
    with pytest.raises(FolderError, match="too big"):
        folder.lines("big.txt")


def test_a_folder_is_read_up_to_a_number_of_files_and_says_so(folder, monkeypatch):
    monkeypatch.setattr(folders, "MAX_FILES", 2)
    listing = folder.listing()
    assert len(listing.documents) == 2
    assert "more files than the 2" in listing.skipped[0]


def test_a_folder_is_read_up_to_a_number_of_bytes_and_says_so(folder, monkeypatch):
    monkeypatch.setattr(folders, "MAX_BYTES", 50)
    listing = folder.listing()
    assert [document.name for document in listing.documents] == ["foo..bar.txt", "inner/deep.rst"]
    assert "'guide.md' is too much" in listing.skipped[0]


def test_hidden_files_caches_and_environments_are_left_out(folder, docs):
    for name in (".git/a.md", "__pycache__/b.py", "env/lib/c.py", ".d.md", "e.pdf"):
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text("heron")
    (docs / "env" / "pyvenv.cfg").write_text("")
    assert names(folder) == ["foo..bar.txt", "guide.md", "inner/deep.rst"]


def test_lines_are_counted_by_line_feeds(folder, docs):
    (docs / "odd.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\x0cstill two\xe2\x80\xa8and still\rthree\n")
    assert folder.lines("odd.txt") == ("one", "two\x0cstill two\u2028and still", "three")


def test_without_a_folder_the_environment_names_it(docs, monkeypatch):
    monkeypatch.setenv("OUTRIDER_DEMO_DOCS", str(docs))
    assert open_folder().root == docs.resolve()
    with pytest.raises(FolderError, match="--docs"):
        open_folder(str(docs / "guide.md"))


def test_an_installed_package_has_no_documents_of_its_own(tmp_path, monkeypatch):
    monkeypatch.delenv("OUTRIDER_DEMO_DOCS", raising=False)
    monkeypatch.setattr(folders, "__file__", str(tmp_path / "outrider" / "examples" / "research" / "folder.py"))
    with pytest.raises(FolderError, match="--docs"):
        open_folder()


def test_the_project_is_restricted_to_its_documents(tmp_path, monkeypatch):
    monkeypatch.delenv("OUTRIDER_DEMO_DOCS", raising=False)
    for name in ("README.md", "docs/a.md", "worker/b.py", "pyproject.toml", "examples/research/folder.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("heron")
    monkeypatch.setattr(folders, "__file__", str(tmp_path / "examples" / "research" / "folder.py"))
    project = open_folder()
    assert names(project) == ["README.md", "docs/a.md"]
    with pytest.raises(FolderError, match="not part of the documents"):
        project.lines("worker/b.py")


def test_the_passage_with_the_rare_words_comes_first(folder, docs):
    (docs / "many.md").write_text("".join(f"## Part {n}\n\nA bird stands by the water.\n\n" for n in range(20)))
    found = search(folder, "Where does the heron stand?")
    assert found.passages[0].file == "guide.md"
    assert found.passages[0].start == 1
    assert found.counts == {"heron": 1, "stand": 21}
    assert found.total == 23


def test_a_search_for_what_is_nowhere_finds_nothing(folder):
    found = search(folder, "zeppelin")
    assert found.passages == ()
    assert found.counts == {"zeppelin": 0}
    assert search(folder, "").passages == ()


def test_an_empty_folder_can_be_searched(tmp_path):
    assert search(open_folder(str(tmp_path)), "heron").total == 0


def test_the_index_is_kept_until_a_file_changes(folder, docs, monkeypatch):
    read = []
    lines = DocumentFolder.lines
    monkeypatch.setattr(DocumentFolder, "lines", lambda self, name: read.append(name) or lines(self, name))
    search(folder, "heron")
    search(folder, "kingfisher")
    assert sorted(read) == ["foo..bar.txt", "guide.md", "inner/deep.rst"]
    (docs / "guide.md").write_text("# Guide\n\nAn osprey fishes here now.\n")
    assert search(folder, "osprey").passages[0].file == "guide.md"
    assert search(folder, "heron").passages == ()


def test_runs_that_start_at_once_build_the_index_once(folder, monkeypatch):
    second_is_there, read = threading.Event(), []
    lock, lines = threading.Lock(), DocumentFolder.lines

    class Door:
        def __enter__(self):
            if lock.locked():
                second_is_there.set()
            lock.acquire()

        def __exit__(self, *args):
            lock.release()

    def slow(self, name):
        read.append(name)
        assert second_is_there.wait(10), "nobody waits at the door while the index is built"
        return lines(self, name)

    monkeypatch.setattr(searching, "_building", Door())
    monkeypatch.setattr(DocumentFolder, "lines", slow)
    threads = [threading.Thread(target=search, args=(folder, "heron")) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read) == 3


def test_a_passage_is_found_by_the_heading_above_it(folder, docs):
    (docs / "long.md").write_text("# Cormorants\n\n" + "They dry wings.\n\n" * 20)
    assert len([one for one in search(folder, "cormorants").passages if one.file == "long.md"]) > 3


def test_passages_hold_every_line_that_says_something_once():
    lines = tuple(f"{'## ' if n % 17 == 0 else ''}line {n}" if n % 5 else "" for n in range(100))
    passages = list(split("a.md", lines))
    numbered = [(at, line) for passage in passages for at, line in enumerate(passage.lines, passage.start) if line]
    assert numbered == [(at, line) for at, line in enumerate(lines, 1) if line]


def test_a_passage_knows_the_headings_above_it():
    lines = ("# One", "", "## Two", "text", "# Three", "text")
    assert [passage.heading for passage in split("a.md", lines)] == ["One", "One > Two", "Three"]
