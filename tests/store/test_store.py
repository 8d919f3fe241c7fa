"""What is added is found again: by name, by filter, as a table and as a data set."""

import contextlib
import os
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from own_shards import resealed, shard_of

from stepwell import Experiment
from stepwell._util.errors import InvalidInput
from stepwell._util.run_names import first_of_each, is_among
from stepwell.store import Shard, Store, _store, export


def flip(path: Path, *, silently: bool = False) -> None:
    """Change a bit of a file; silently: as a disk does, without a new time of change."""
    facts = path.stat()
    content = bytearray(path.read_bytes())
    content[-200] ^= 1
    path.write_bytes(content)
    if silently:
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def test_off_is_no_store_and_an_empty_name_none_either(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong in ("off", "", " "):
        with pytest.raises(InvalidInput, match="name a folder"):
            Store(wrong)
    assert Store("./off").path == Store(Path("off")).path == Path("off")


def test_what_is_added_is_known_and_listed(store: Store):
    first, second = shard_of(0), shard_of(5, kind="merged", heads=3)
    assert not store.known(first.names).any() and not store.path.exists()  # asking makes no folder
    assert store.add(first).is_file()
    store.add(second)
    assert (
        store.known(np.concatenate([first.names, second.names, first.names ^ 1])).tolist() == [True] * 10 + [False] * 5
    )
    table = store.table()
    assert len(table) == 10 and table.index.name == "name"
    row = table.to_dict("index")[second.names[1].tobytes().hex()]
    expected = {"seed": 6, "model.kind": "merged", "model.rank": 2, "model.heads": 3.0, "final_loss": 0.6}
    expected["task.eigenvalues"] = (0.6, 0.4)
    assert {name: row[name] for name in expected} == expected
    assert table["model.heads"].isna().tolist().count(True) == 5


def test_a_question_opens_no_shard_that_is_indexed(store: Store, monkeypatch: pytest.MonkeyPatch):
    store.add(shard_of(0))
    for one in (store, Store(store.path)):
        monkeypatch.setattr(one._index, "_read", lambda path: pytest.fail(f"{path} was read"))
        assert len(one.table()) == 5 and one.known(shard_of(0).names).all()


@pytest.mark.parametrize(
    ("where", "seeds"),
    [
        ([], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (["model=separate"], [0, 1, 2, 3, 4]),
        (["final_loss<0.65", "model.kind=merged"], [5, 6]),
        (["outcome=diverged", "seed>2"], [3, 6, 9]),
        (["heads=3"], [5, 6, 7, 8, 9]),
        (["heads!=3"], [0, 1, 2, 3, 4]),
        (["heads=none"], [0, 1, 2, 3, 4]),
        (["eigenvalues=0.6,0.4", "seed>=8"], [8, 9]),
        (["model~d$", "rate<2"], [5]),
        (["rank=3"], []),
    ],
)
def test_filters(store: Store, where: list[str], seeds: list[int]):
    store.add(shard_of(0))
    store.add(shard_of(5, kind="merged", heads=3))
    assert sorted(store.table(where)["seed"]) == seeds
    assert sorted(store.select(where)["seed"].values.ravel().tolist()) == seeds


def test_order_limit_and_columns(store: Store):
    store.add(shard_of(0))
    store.add(Shard({}, {"seed": [10, 11]}, {"final_loss": [np.nan, -1.0], "extra": [2**60, 3]}))
    table = store.table(sort="final_loss", columns=["seed", "extra"])
    assert table["seed"].tolist() == [11, 0, 1, 2, 3, 4, 10]
    assert store.table(sort="-final_loss", limit=2)["seed"].tolist() == [4, 3]
    assert store.table(sort="outcome", columns=["seed"])["seed"].tolist()[-2:] == [10, 11]
    assert table["extra"].dropna().tolist() == [3, 2**60]  # no digit is lost to floats
    listing = store.listing(["seed<3"], limit=1)
    assert listing.total == 3 and len(listing.names) == 1
    with pytest.raises(InvalidInput, match="did you mean final_loss"):
        store.table(["final_los<1"])
    with pytest.raises(InvalidInput, match="no run has a field"):
        store.table(columns=["nothing"])


def test_runs_by_name(store: Store):
    shard = shard_of(0)
    store.add(shard)
    name = shard.names[2].tobytes().hex()
    for digits in (name, name[:9], name[:10].upper()):
        assert store.table([f"name={digits}"])["seed"].tolist() == [2]
    found = store.describe(name[:9])
    assert found["configuration"]["seed"] == 2 and found["scalars"]["final_loss"] == 0.2
    assert found["recorded"]["loss"] == {"sizes": {"run": 5, "step": 3}, "dtype": "<f8"}
    for wrong in ("", "x", "f" * 33, "../x"):
        with pytest.raises(InvalidInput):
            store.describe(wrong)
    np.testing.assert_array_equal(store.select(names=shard.names[1:3])["seed"], [1, 2])


def test_a_selection_reads_what_is_asked_for_and_equals_what_was_written(store: Store):
    shards = [shard_of(first) for first in (0, 5, 10)]
    for shard in shards:
        store.add(shard)
    data = store.select(["seed>2"])
    assert not data["loss"].variable._in_memory
    order = np.argsort(data["seed"].values)
    whole = np.concatenate([shard.data["loss"].values for shard in shards])[3:]
    np.testing.assert_array_equal(data["loss"].values[order], whole)
    for key in (np.s_[3], np.s_[-1, 1], np.s_[::-2, [2, 0]], np.s_[[7, 0, 7], 1:], np.s_[2:2]):
        np.testing.assert_array_equal(store.select(["seed>2"])["loss"][key], data["loss"].values[key])
    assert data["step"].values.tolist() == [0, 5, 10] and data["model.kind"].item() == "separate"
    picked = store.select().isel(run=xr.DataArray([0, 1], dims="pick"), step=xr.DataArray([0, 1], dims="pick"))["loss"]
    np.testing.assert_array_equal(picked, [store.select()["loss"].values[0, 0], store.select()["loss"].values[1, 1]])


def test_runs_of_several_shapes_are_stacked_if_asked_for_what_they_share(store: Store):
    store.add(shard_of(0))
    store.add(Shard({}, {"seed": [9]}, {}, xr.Dataset({"loss": (("run", "step"), [[1.0, 2.0]]), "one": ("run", [1])})))
    for variables in (None, ["loss"], ["one"]):
        with pytest.raises(InvalidInput, match="one shape"):
            store.select(variables=variables)
    with pytest.raises(InvalidInput, match="no run recorded"):
        store.select(variables=["nothing"])
    assert store.select(variables=[]).sizes == {"run": 6}
    assert store.select(["seed=9"])["one"].values.tolist() == [1]


def test_a_field_with_the_name_of_an_axis_is_kept_under_another(store: Store):
    data = xr.Dataset({"loss": (("run", "dim"), np.ones((2, 3)))})
    store.add(Shard({"dim": 3}, {"seed": [0, 1]}, {"loss": [0.1, 0.2]}, data))
    made = store.select()
    assert made["field_dim"].item() == 3 and made["scalar_loss"].values.tolist() == [0.1, 0.2]


def test_a_run_in_several_shards_counts_once(store: Store):
    paths = [store.add(shard_of(first, runs)) for first, runs in ((0, 5), (3, 5), (0, 8))]
    assert len(store.table()) == 8 and len(store.select()["run"]) == 8
    removed = store.collect_garbage()
    assert removed and set(removed) <= set(paths) and sorted(store.table()["seed"]) == list(range(8))


def test_garbage_is_kept_while_the_shard_that_holds_the_same_runs_is_damaged(store: Store):
    whole = store.add(shard_of(0, 8))
    part = next(one for one in (shard_of(0, runs) for runs in range(1, 8)) if one.file_name > shard_of(0, 8).file_name)
    path = store.add(part)  # of two the first in the order of names is the one that counts
    flip(whole, silently=True)
    assert store.collect_garbage() == [] and path.exists()
    store.add(shard_of(0, 8))
    assert store.collect_garbage() == [path] and len(store.table()) == 8


def test_adding_again_changes_nothing_and_a_damaged_shard_is_replaced(store: Store):
    shard = shard_of(0)
    path = store.add(shard)
    before = path.stat()
    assert store.add(shard) == path
    assert path.stat().st_mtime_ns == before.st_mtime_ns and path.stat().st_ino == before.st_ino
    flip(path)
    other = Store(store.path)
    other.rebuild_index()
    assert not other.known(shard.names).any() and list(other.damaged()) == [path]
    with pytest.warns(RuntimeWarning, match=path.name):
        assert len(other.table(["seed=0"], columns=["seed"], sort="rate")) == 0
    with pytest.warns(RuntimeWarning, match=path.name):
        assert other.select(["seed=0"]).sizes["run"] == 0
    other.add(shard)
    assert other.known(shard.names).all() and Store(store.path).known(shard.names).all() and not other.damaged()
    assert other.verify() == [] and path.read_bytes() == shard.to_bytes()


def test_a_shard_damaged_after_it_was_indexed_is_named_and_never_used(store: Store):
    path = store.add(shard_of(0))
    store.add(shard_of(5))
    data = store.select()
    flip(path, silently=True)
    with pytest.raises(InvalidInput, match=path.name):
        data["loss"].load()
    assert [problem.path for problem in store.verify()] == [path]
    for one in (store, Store(store.path)):
        with pytest.warns(RuntimeWarning, match=path.name):
            assert sorted(one.table()["seed"]) == [5, 6, 7, 8, 9]
        assert list(one.damaged()) == [path]
    assert store.collect_garbage() == [] and store.collect_garbage(damaged=True) == [path]
    assert store.verify() == []


def test_verify_names_all_that_is_wrong_and_touches_nothing(store: Store, tmp_path: Path):
    cut, changed, renamed, good = (store.add(shard_of(first)) for first in (0, 5, 10, 15))
    cut.write_bytes(cut.read_bytes()[:-10])
    flip(changed)
    moved = renamed.with_name(renamed.name[:2] + "0" * 30 + ".nc")
    renamed.rename(moved)
    outside = tmp_path / "outside.nc"
    outside.write_bytes(good.read_bytes())
    link = good.with_name(good.name[:2] + "1" * 30 + ".nc")
    link.symlink_to(outside)
    foreign = store.shards_path / "notes.txt"
    foreign.write_text("mine")
    folder = store.shards_path / "zz-folder"
    folder.mkdir()

    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in store.path.rglob("*")}

    before = state()
    assert sorted(one.path for one in store.verify()) == sorted([cut, changed, moved, link, foreign, folder])
    assert state() == before
    with pytest.warns(RuntimeWarning, match=cut.name):
        assert sorted(store.table()["seed"]) == [15, 16, 17, 18, 19]
    assert set(store.damaged()) == {cut, changed, moved}
    store.collect_garbage(damaged=True)
    assert foreign.exists() and link.is_symlink() and outside.exists()


def test_removing_runs_keeps_the_others_as_they_were(store: Store):
    shard = shard_of(0, 8)
    store.add(shard)
    store.add(shard_of(4, 6))
    store.add(shard_of(20))
    assert store.remove(["seed>=5", "seed<20"]) == 5
    data = store.select()
    assert sorted(data["seed"].values) == [0, 1, 2, 3, 4, 20, 21, 22, 23, 24]
    chosen = data.isel(run=data["seed"].values < 5)
    np.testing.assert_array_equal(
        chosen["loss"].values[np.argsort(chosen["seed"].values)], shard.data["loss"].values[:5]
    )
    assert store.verify() == [] and store.remove(["seed=20"]) == 1
    assert store.remove() == 9 and store.shards() == []


@pytest.mark.parametrize("runs", [5, 3])
def test_replacing_runs_removes_them_from_other_shards(store: Store, runs: int):
    """Also from one that has others too, whose own stay."""
    store.add(shard_of(0))
    other = shard_of(0, runs)
    doubled = Shard(other.common, other.fields, {"final_loss": 2 * other.scalars["final_loss"].values + 1})
    store.add(doubled, replace=True)
    table = store.table(columns=["seed", "final_loss"], sort="seed")
    expected = [2 * seed / 10 + 1 if seed < runs else seed / 10 for seed in range(5)]
    assert table["final_loss"].tolist() == pytest.approx(expected) and store.verify() == []


def test_what_cannot_be_replaced_stays(store: Store, monkeypatch: pytest.MonkeyPatch):
    store.add(shard_of(0))

    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_store, "write_bytes", full)
    with pytest.raises(OSError):
        store.add(shard_of(0), replace=True)
    assert len(store.table()) == 5 and store.verify() == []


def test_merging_copies_what_is_missing_and_names_what_is_damaged(store: Store, tmp_path: Path):
    other = Store(tmp_path / "other")
    bad, good, _ = (other.add(shard_of(first)) for first in (0, 5, 10))
    store.add(shard_of(10))
    flip(bad)
    merged = store.merge(other)
    assert (merged.shards, merged.runs, [one.path for one in merged.problems]) == (1, 5, [bad])
    assert sorted(store.table()["seed"]) == list(range(5, 15))
    assert (store.shards_path / good.relative_to(other.shards_path)).read_bytes() == good.read_bytes()
    assert store.merge(other.path)[:2] == (0, 0)
    with pytest.raises(InvalidInput, match="no store"):
        store.merge(tmp_path / "absent")


def test_exports_hold_what_the_store_holds(store: Store, tmp_path: Path):
    pd = pytest.importorskip("pandas")
    store.add(shard_of(0))
    path = export(store, tmp_path / "a.nc", ["seed<3"])
    with xr.open_dataset(path) as data:
        xr.testing.assert_equal(data.load(), store.select(["seed<3"]).load())
    table = pd.read_csv(export(store, tmp_path / "a.csv", format="csv"), index_col="name")
    assert table["final_loss"].tolist() == store.table()["final_loss"].tolist()
    assert table["task.eigenvalues"].tolist() == ["[0.6,0.4]"] * 5
    with pytest.raises(InvalidInput, match="one of 'netcdf'"):
        export(store, tmp_path / "a", format="x")


@pytest.mark.parametrize("format", ["zarr", "parquet"])
def test_formats_that_need_more_say_what(store: Store, tmp_path: Path, format: str, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, {"zarr": "zarr", "parquet": "pyarrow"}[format], None)
    store.add(shard_of(0))
    with pytest.raises(InvalidInput, match=r"stepwell\[export\]"):
        export(store, tmp_path / "a", format=format)


@pytest.mark.optional(installed_by_ci=True)
@pytest.mark.parametrize("format", ["zarr", "parquet"])
def test_formats_that_need_more_hold_the_same(store: Store, tmp_path: Path, format: str):
    pytest.importorskip({"zarr": "zarr", "parquet": "pyarrow"}[format])
    store.add(shard_of(0))
    path = export(store, tmp_path / "a", format=format)
    if format == "zarr":
        xr.testing.assert_equal(xr.open_zarr(path, consolidated=False).load(), store.select().load())
    else:
        import pandas as pd

        assert pd.read_parquet(path)["final_loss"].tolist() == store.table()["final_loss"].tolist()


def test_the_folder_is_that_of_the_environment(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPWELL_STORE", raising=False)
    assert Store().path == Path("stepwell-runs")
    monkeypatch.setenv("STEPWELL_STORE", str(tmp_path / "elsewhere"))
    assert Store().path == tmp_path / "elsewhere"


def test_sets_of_names_with_equal_halves():
    rng = np.random.default_rng(0)
    names = rng.integers(0, 2, (400, 16)).astype(np.uint8)
    names[:, 2:8] = names[:, 10:] = 0  # first halves repeat often
    known, asked = names[:100], names[100:]
    texts = {row.tobytes() for row in known}
    assert is_among(asked, known).tolist() == [row.tobytes() in texts for row in asked]
    seen: set[bytes] = set()
    expected = [not (row.tobytes() in seen or seen.add(row.tobytes())) for row in names]
    assert first_of_each(names).tolist() == expected
    assert not is_among(asked, known[:0]).any()


def test_a_store_of_an_earlier_version_is_refused(store: Store):
    """Its runs had other names: they would count as missing without a word."""
    shard = shard_of(0)
    path = store.add(shard)
    path.write_bytes(resealed(shard.to_bytes(), lambda file: file.attrs.__setitem__("stepwell_shard", "1")))
    for ask in (store.table, store.columns, lambda: store.known(shard.names), store.select):
        with pytest.raises(InvalidInput, match=f"{path.name}.*earlier version.*choose another store") as caught:
            ask()
        assert "\n" not in str(caught.value)
    assert ["earlier version" in reason for _, reason in store.verify()] == [True]


def test_an_index_of_an_earlier_version_is_made_anew(store: Store):
    """Tables of another format would list shards that this version cannot read."""
    store.add(shard_of(0))
    with contextlib.closing(sqlite3.connect(store.path / "index.sqlite")) as connection:
        connection.execute("DROP TABLE shards")
        connection.execute("CREATE TABLE shards (id INTEGER PRIMARY KEY, file TEXT NOT NULL UNIQUE)")
        connection.commit()
    assert len(store.table()) == 5


def test_an_experiment_is_found_by_its_name(store: Store):
    experiment = Experiment(model={"heads": 3}, training={"until": 1.0}, record={"measure": ["drops"]}, seed=7)
    canonical = experiment.canonical()
    seed = canonical.pop("seed")
    store.add(Shard(canonical, {"seed": [seed, seed + 1]}))
    assert store.experiment(experiment.name[:12]) == experiment
    assert store.experiment(experiment.replace(seed=8).name).seed == 8
