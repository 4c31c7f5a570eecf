import json
import os
import resource
import shutil
import signal
import zipfile
from io import BytesIO

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.test_record import FIRST
from workbench.cli import main
from workbench.errors import BadInputError, ConflictError, NotFoundError, StorageError
from workbench.monitor.record import SCHEMA, Recorder, read_events
from workbench.runs import answer_storage, exchange, store
from workbench.runs.exchange import export_run, import_run
from workbench.runs.run import Run
from workbench.session import Session
from workbench.storage.targets import target
from workbench.storage.variables import dataset


@pytest.fixture
def run(data_folder):
    run = store.create(
        Run(id="array_sum-3fa29c", workload="array_sum", cluster="calm-otter", status="done", created=5.0, seconds=1.5)
    )
    with Recorder(store.folder(run.id) / "events.parquet") as recorder:
        recorder.write(FIRST)
    (store.folder(run.id) / "log.txt").write_text("It went well.\n")
    return run


@pytest.fixture
def exported(run, tmp_path):
    return export_run(run, tmp_path / "run.zip")


def rewritten(path, changes):
    """Write a copy of an export with some members changed, added or (None) left out."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()} | changes
    other = path.with_name("changed.zip")
    with zipfile.ZipFile(other, "w") as archive:
        for name, content in members.items():
            if content is not None:
                archive.writestr(name, content)
    return other


def described(path, **changes):
    with zipfile.ZipFile(path) as archive:
        told = json.loads(archive.read("run.json"))
    return json.dumps({**told, **changes}).encode()


def test_an_exported_run_is_imported_where_nothing_is_known_of_it(run, exported, data_folder):
    shutil.rmtree(data_folder)
    taken = import_run(exported)
    assert taken == store.get(run.id)
    assert taken.imported.machine
    assert taken.model_copy(update={"imported": None}) == run
    assert list(read_events(store.folder(run.id) / "events.parquet").tasks) == list(FIRST.tasks)
    assert (store.folder(run.id) / "log.txt").read_text() == "It went well.\n"
    assert sorted(path.name for path in (data_folder).iterdir() if path.name.startswith(".")) == []


def test_an_imported_run_keeps_the_machine_it_ran_on(run, exported, data_folder, tmp_path):
    other = rewritten(exported, {"run.json": described(exported, machine="node-7")})
    taken = import_run(other, new_id=True)
    again = export_run(taken, tmp_path / "again.zip")
    assert import_run(again, new_id=True).imported.machine == "node-7"


def test_a_run_that_is_there_already_is_imported_only_under_a_new_id(run, exported):
    with pytest.raises(ConflictError, match="There is a run array_sum-3fa29c already"):
        import_run(exported)
    other = import_run(BytesIO(exported.read_bytes()), new_id=True)
    assert other.id != run.id
    assert {each.id for each in store.select()} == {run.id, other.id}


def test_only_runs_that_have_ended_are_exported_and_nothing_is_written_over(run, exported, tmp_path):
    with pytest.raises(ConflictError, match="is there already"):
        export_run(run, exported)
    assert export_run(run, exported, replace=True) == exported
    assert export_run(run, tmp_path) == tmp_path / "array_sum-3fa29c.zip"
    assert Session().export_run(run.id, str(tmp_path / "a.zip")) == tmp_path / "a.zip"
    assert import_run(tmp_path / "a.zip", new_id=True).parameters == run.parameters
    with pytest.raises(NotFoundError, match="no folder"):
        export_run(run, tmp_path / "missing" / "a.zip")
    with pytest.raises(ConflictError, match="still running"):
        export_run(run.model_copy(update={"status": "running"}), tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInputError, match="pipe is a FIFO"):
        export_run(run, tmp_path / "pipe", replace=True)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"../evil.txt": b"x"}, r"holds '../evil.txt'"),
        ({"/etc/passwd": b"x"}, r"holds '/etc/passwd'"),
        ({"run.json": None}, "has no run.json"),
        ({"run.json": b"[" * 100_000}, "is not JSON"),
        ({"run.json": b"[]"}, "doesn't describe a run"),
        ({"run.json": {"version": 2}}, "later dask-workbench"),
        ({"run.json": {"version": "x"}}, "has the version 'x'"),
        ({"run.json": {"run": {"id": "a"}}}, "workload: Field required"),
        ({"run.json": {"run": {"id": "../a", "workload": "w", "cluster": "c", "status": "done"}}}, "can't be one"),
        ({"run.json": {"run": {"id": "a", "workload": "w", "cluster": "c"}}}, "said to be starting"),
        ({"events.parquet": b"nothing"}, "events.parquet in .* can't be read"),
    ],
)
def test_what_is_not_a_sound_export_is_refused_in_a_sentence(exported, data_folder, changes, sentence):
    changes = {
        name: described(exported, **content) if isinstance(content, dict) else content
        for name, content in changes.items()
    }
    before = sorted(data_folder.rglob("*"))
    with pytest.raises(BadInputError, match=sentence):
        import_run(rewritten(exported, changes), new_id=True)
    assert sorted(data_folder.rglob("*")) == before


def test_a_table_of_another_kind_or_a_later_version_is_refused(exported):
    for table, sentence in (
        (pa.table({"a": [1]}), "lacks the column event"),
        (pa.table({"a": [1]}).replace_schema_metadata({"dask-workbench": "99"}), "later dask-workbench"),
    ):
        file = BytesIO()
        pyarrow.parquet.write_table(table, file)
        with pytest.raises(BadInputError, match=sentence):
            import_run(rewritten(exported, {"events.parquet": file.getvalue()}), new_id=True)


def test_a_file_that_would_fill_the_disk_is_refused_before_it_does(exported, data_folder, monkeypatch):
    monkeypatch.setattr(exchange, "MOST_BYTES", 2_000_000)
    bomb = exported.with_name("bomb.zip")
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run.json", described(exported))
        archive.writestr("log.txt", b"0" * 5_000_000)
    with pytest.raises(BadInputError, match="unpacked to more than"):
        import_run(bomb)
    # And when it lies about its size.
    size = (5_000_000).to_bytes(4, "little")
    bomb.write_bytes(bomb.read_bytes().replace(size, (1_000).to_bytes(4, "little")))
    with pytest.raises(BadInputError):
        import_run(bomb)
    assert not [path for path in data_folder.iterdir() if path.name.startswith(".import")]


def test_a_full_data_folder_is_not_called_a_file_that_cannot_be_read(exported, data_folder):
    limit, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limit[1]))
    try:
        with pytest.raises(StorageError, match=rf"{data_folder} can't be written"):
            import_run(exported)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)


def test_what_is_no_zip_or_half_of_one_is_refused(exported, tmp_path):
    with pytest.raises(NotFoundError, match="no file"):
        import_run(tmp_path / "missing.zip")
    whole = exported.read_bytes()
    for content in (b"", b"PK", whole[: len(whole) // 2], whole[:60] + b"\0\1\2\3" * 20 + whole[140:]):
        (tmp_path / "broken.zip").write_bytes(content)
        with pytest.raises(BadInputError):
            import_run(tmp_path / "broken.zip", new_id=True)


def test_arrays_go_along_where_they_are_asked_for_and_are_brought_back(data_folder, tmp_path, quick_client):
    store.create(Run(id="mine-1", workload="mine", cluster="otter", status="running", created=5.0))
    answer = dataset({"température": (("row", "column"), np.arange(6.0).reshape(2, 3))})
    left = answer_storage.leave("mine-1", answer, None, quick_client)
    run = store.update("mine-1", answers=left.answers, status="done")
    without, with_them = export_run(run, tmp_path / "a.zip"), export_run(run, tmp_path / "b.zip", with_answers=True)
    shutil.rmtree(data_folder)
    assert import_run(with_them).arrays["température"].sum() == 15
    taken = import_run(without, new_id=True)
    assert (dict(taken.arrays), taken.answers.kept) == ({}, ())
    assert "not kept" in taken.answers.sentence


def test_arrays_that_do_not_go_along_are_named_with_where_they_are(data_folder, tmp_path, quick_client, capsys):
    store.create(Run(id="mine-1", workload="mine", cluster="otter", status="running", created=5.0))
    answer = dataset({"u": (("row", "column"), np.ones((200, 10))), "s": (("component",), np.ones(3))})
    with dask.config.set({"workbench.answers.each": "1kiB"}):
        left = answer_storage.leave("mine-1", answer, target(tmp_path / "big.zarr"), quick_client)
    store.update("mine-1", answers=left.answers, status="done")
    told = f"u (200 × 10 float64): 15.6 kiB, saved to {tmp_path / 'big.zarr'}."
    assert main(["save", "mine-1", str(tmp_path / "a.zip"), "--with-answers", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["left_out"] == told
    assert f"Not in it: {told}" in said.err
    assert main(["save", "mine-1", str(tmp_path / "b.zip"), "--json"]) == 0
    said = capsys.readouterr()
    assert (json.loads(said.out)["left_out"], said.err) == (None, "")


def bomb(exported, members):
    """Write a small zip that unpacks to much more, with the description of a valid export."""
    path = exported.with_name("bomb.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run.json", described(exported))
        for name, n_bytes in members.items():
            with archive.open(name, "w", force_zip64=True) as member:
                for _ in range(n_bytes // 2**20):
                    member.write(bytes(2**20))
    return path


@pytest.mark.parametrize(
    ("members", "options", "sentence"),
    [
        ({"log.txt": 2**25}, {}, "'log.txt', which would be unpacked to more than 16 MiB"),
        ({"events.parquet": 2**26}, {}, "'events.parquet', which would be unpacked to more than"),
        ({f"answer.zarr/x/c/{i}": 2**23 for i in range(8)}, {}, "'answer.zarr/x/c/.', which would be unpacked to more"),
        ({"log.txt": 2**22}, {"max_size": 2**20}, "more than 1 MiB. If you trust .* --max-size"),
        ({f"answer.zarr/x/c/{i}": 0 for i in range(20)}, {}, "21 members. .* at most 20"),
    ],
)
def test_a_small_zip_of_much_is_refused_and_leaves_nothing(
    exported, data_folder, members, options, sentence, monkeypatch
):
    monkeypatch.setattr(exchange, "MOST_MEMBERS", 20)
    path = bomb(exported, members)
    assert path.stat().st_size < 2**20
    before = sorted(data_folder.rglob("*"))
    with pytest.raises(BadInputError, match=sentence):
        import_run(path, new_id=True, **options)
    assert sorted(data_folder.rglob("*")) == before


def store_of(arrays, **changes):
    """Members of a Zarr store with these arrays, changed."""
    import zarr
    from zarr.storage import MemoryStore

    store = MemoryStore()
    group = zarr.open_group(store, mode="w")
    for name, shape in arrays.items():
        group.create_array(name, shape=shape, dtype="f8", chunks=shape, **changes)
    return {f"answer.zarr/{name}": value.to_bytes() for name, value in store._store_dict.items()}


def answered(exported, shape, members):
    told = json.loads(described(exported))
    array = {"shape": shape, "dtype": "float64", "dims": ["row"], "bytes": 8 * shape[0]}
    told["run"]["answers"] = {"arrays": {"x": array}, "kept": ["x"]}
    return rewritten(exported, {"run.json": json.dumps(told).encode(), **members})


@pytest.mark.parametrize(
    ("shape", "members", "sentence"),
    [
        # Not a single chunk is there.
        ((2**40,), {}, "they would take 8 TiB in 1 block. At most 128 MiB"),
        ((4,), {"answer.zarr/x/zarr.json": b"{}"}, "can't be"),
        ((3,), {}, "something else is there"),
    ],
)
def test_arrays_that_are_not_what_the_record_says_are_refused(exported, shape, members, sentence):
    there = store_of({"x": (4,) if shape[0] < 9 else shape})
    with pytest.raises(BadInputError, match=sentence):
        import_run(answered(exported, shape, there | members), new_id=True)


def frame(n_bytes, claimed=None):
    """Return a Zstandard frame of zeros, which claims to have `claimed` bytes."""
    blocks, left = b"", n_bytes
    while left:
        part = min(left, 2**17)
        left -= part
        blocks += ((not left) | 2 | part << 3).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\xe0" + (claimed or n_bytes).to_bytes(8, "little") + blocks


@pytest.mark.parametrize(
    ("changes", "block", "sentence"),
    [
        ({}, frame(2**31), "is damaged"),
        ({}, frame(2**20), "more or less"),
        ({}, frame(32, 2**40), "is damaged"),
        (
            {"codecs": [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]},
            b"",
            "written with bytes, gzip",
        ),
        (
            {
                "data_type": "string",
                "fill_value": "",
                "codecs": [{"name": "vlen-utf8"}, {"name": "zstd", "configuration": {}}],
            },
            pa.compress((2**31 - 1).to_bytes(4, "little") + bytes(64), "zstd", asbytes=True),
            "more or less",
        ),
        ({"shape": [2**24], "data_type": "uint8"}, b"", "in 4,194,305 blocks"),
    ],
    ids=["2 GiB", "1 MiB", "1 TiB", "gzip", "texts", "blocks"],
)
def test_a_block_that_is_more_than_its_array_says_is_refused_before_it_is_unpacked(exported, changes, block, sentence):
    there = store_of({"x": (4,), "y": (4,)})
    described_y = json.loads(there["answer.zarr/y/zarr.json"]) | changes
    changed = {"answer.zarr/y/zarr.json": json.dumps(described_y).encode(), "answer.zarr/y/c/0": block}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadInputError, match=sentence):
        import_run(answered(exported, (4,), there | changed), new_id=True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_a_table_whose_rows_repeat_a_long_text_is_refused_before_it_is_read(exported):
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 300, "i4"), pa.array(["A" * 2**20]))
    plain = {"event": ["task"] * 300, "key": repeated.cast(pa.string())}
    table = pa.table([pa.array(plain.get(each.name, [None] * 300), each.type) for each in SCHEMA], schema=SCHEMA)
    file = BytesIO()
    pyarrow.parquet.write_table(table, file)
    assert len(file.getvalue()) < 2**20
    with pytest.raises(BadInputError, match=r"would take more than 256 MiB. If you trust .* --max-size"):
        import_run(rewritten(exported, {"events.parquet": file.getvalue()}), new_id=True)


def test_a_zip_or_a_description_of_too_many_things_is_refused_before_they_are_in_memory(exported, monkeypatch):
    values = rewritten(exported, {"run.json": described(exported, more=[[]] * 500_000)})
    with pytest.raises(BadInputError, match="more than 500,000 values"):
        import_run(values, new_id=True)
    monkeypatch.setattr(exchange, "_DIRECTORY", 2**10)
    with pytest.raises(BadInputError, match="lists its members in"):
        import_run(bomb(exported, {f"answer.zarr/x/c/{i}": 0 for i in range(20)}), new_id=True)


@pytest.mark.parametrize("member", ["x/__init__.py", "x/c/../../../y", "x/c/a"])
def test_only_files_of_a_zarr_store_are_taken_in(exported, member):
    with pytest.raises(BadInputError, match="metadata and chunks of a Zarr store"):
        import_run(rewritten(exported, {f"answer.zarr/{member}": b""}), new_id=True)


def test_of_a_long_log_the_end_is_shown_and_exported(run, exported, data_folder, tmp_path, monkeypatch, capsys):
    log = store.folder(run.id) / "log.txt"
    with log.open("w") as file:
        file.write("first\n" + "x" * 99 + "\n")
        file.seek(2**31)  # sparse
        file.write("\nlast\n")
    assert main(["show", run.id, "--log"]) == 0
    said = capsys.readouterr().out
    assert len(said) < 2 * 2**18
    assert said.startswith("… The first 2 GiB of log.txt are left out.")
    assert said.endswith("last\n")
    monkeypatch.setitem(exchange.MOST_EACH, "log.txt", 2**12)
    again = import_run(export_run(run, tmp_path / "again.zip"), new_id=True)
    assert (store.folder(again.id) / "log.txt").read_text().endswith("last\n")


def test_secrets_in_a_record_that_comes_from_elsewhere_are_hidden(exported, data_folder):
    told = json.loads(described(exported))
    told["run"] |= {"id": "other-1", "notes": ["Authorization: Bearer abcdefgh.12345678", "A bearer of good news."]}
    told["run"]["result"] = {"attrs": {"Authorization": "Bearer abcdefgh.12345678"}}
    log = b"X_TOKEN=abcdefgh http://u:abcdefgh@host/ and Authorization: Bearer abcdefgh.12345678"
    taken = import_run(rewritten(exported, {"run.json": json.dumps(told).encode(), "log.txt": log}))
    kept = [path.read_bytes() for path in data_folder.rglob("*") if path.is_file()]
    assert not any(b"abcdefgh" in each for each in kept)
    assert taken.notes[1] == "A bearer of good news."
