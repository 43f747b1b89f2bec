"""Where the benchmarks' data come from, and that they are what they should be."""

import dataclasses
import gzip
import io
from urllib.error import HTTPError

import pytest

from populora.core.errors import ConfigError
from populora.core.files import digest
from populora.evals import data
from populora.evals.benchmarks import BENCHMARKS, GROUPS, suite
from populora.evals.data import MissingDataError, digest_of, find_data, load_items

CONTENT = b'{"id": 7, "problem": "1+1"}\n{"problem": "2+2"}\n'
AIME = dataclasses.replace(BENCHMARKS["aime24"], items=2, sha256=digest(CONTENT), source="owner/tree@abc:folder/test.jsonl.gz")


def test_other_bytes_than_the_pinned_ones_are_refused(tmp_path):
    (tmp_path / "aime24.jsonl").write_bytes(CONTENT + b"\n")
    with pytest.raises(ConfigError, match="not the pinned aime24: expected SHA-256"):
        load_items(AIME, tmp_path / "aime24.jsonl")
    assert len(load_items(AIME, tmp_path / "aime24.jsonl", verify=False)) == 2


def test_the_file_of_another_benchmark_is_told_by_its_fields(tmp_path):
    (tmp_path / "aime24.jsonl").write_bytes(CONTENT)
    with pytest.raises(ConfigError, match="is not humaneval_plus: expected its own file, but an item has no field 'task_id'"):
        load_items(BENCHMARKS["humaneval_plus"], tmp_path / "aime24.jsonl", verify=False)


@pytest.mark.parametrize("line, message", [(b"{", "a JSON object on each"), (b"[]", "JSON object"), (b'{"id": 7}', "'7' more than once")])
def test_a_damaged_file_is_named(tmp_path, line, message):
    (tmp_path / "aime24.jsonl").write_bytes(CONTENT + line + b"\n")
    with pytest.raises(ConfigError, match=message):
        load_items(AIME, tmp_path / "aime24.jsonl", verify=False)


def test_livecodebench_is_never_downloaded():
    with pytest.raises(MissingDataError, match="livecodebench: only from a folder of yours"):
        find_data(BENCHMARKS["livecodebench"])


URL = "http://mirror/owner/tree/abc/folder/test.jsonl.gz"


@pytest.fixture
def answer(tmp_path, monkeypatch):
    """``answer(content)``: a mirror of public Git trees has this file, or none; returns the list of what is asked of it."""
    monkeypatch.setenv("POPULORA_RAW_FILES", "http://mirror/")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def prepare(content):
        requests = []

        def urlopen(url, timeout):
            requests.append(url)
            if content is None:
                raise HTTPError(url, 404, "Not Found", None, None)
            return io.BytesIO(content)

        monkeypatch.setattr(data, "urlopen", urlopen)
        return requests

    return prepare


def test_data_are_downloaded_once_from_the_pinned_commit(answer):
    requests = answer(gzip.compress(CONTENT))
    for _ in range(2):
        items = load_items(AIME, find_data(AIME))
        assert [item.id for item in items] == ["7", "1"] and items[0].fields["problem"] == "1+1"  # its name, or its line
    assert requests == [URL]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be downloaded"),
        (gzip.compress(CONTENT)[:-12], "cannot be downloaded"),
        (gzip.compress(b"{}"), "the download has SHA-256"),
    ],
    ids=["absent", "cut off", "other bytes"],
)
def test_a_download_that_fails_or_is_damaged_is_skipped_and_not_kept(answer, tmp_path, content, message):
    answer(content)
    with pytest.raises(MissingDataError, match=f"aime24: .*{message}"):
        find_data(AIME)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_the_published_files_are_the_pinned_ones(benchmark_data):
    for benchmark in BENCHMARKS.values():
        if benchmark.grading not in ("livecodebench", "execution", "selfplay"):
            assert len(load_items(benchmark, find_data(benchmark, str(benchmark_data)))) == benchmark.items


def test_the_tiny_suite_ships_with_the_package():
    tiny = BENCHMARKS["tiny"]
    assert len(load_items(tiny, find_data(tiny))) == tiny.items == 648
    assert digest_of(find_data(tiny)) == tiny.sha256


def test_a_suite_is_groups_and_names_in_the_tables_order():
    assert [item.name for item in suite(["gsm8k", "code", "MBPP-plus"])] == ["humaneval_plus", "mbpp_plus", "livecodebench", "gsm8k"]
    assert {item.name for item in suite(GROUPS)} == set(BENCHMARKS)
