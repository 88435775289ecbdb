"""What users install: the wheel, and what stands beside the code."""

import itertools
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def run(*command, cwd, **options):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Give a copy of what git has or would take: a build writes into the tree that it builds."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    copy = tmp_path_factory.mktemp("checkout")
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.exists():
            target.write_bytes(source.read_bytes())
    return copy


@pytest.fixture(scope="module")
def built(checkout, tmp_path_factory):
    """Give the sdist, the wheel made from it, and the wheel made from the checkout."""
    out = tmp_path_factory.mktemp("built")
    build = [sys.executable, "-m", "build", "--no-isolation"]
    run(*build, "--outdir", out / "sdist", cwd=checkout)
    run(*build, "--wheel", "--outdir", out / "direct", cwd=checkout)
    (sdist,), (wheel,), (direct,) = (out.glob(where) for where in ("sdist/*.tar.gz", "sdist/*.whl", "direct/*.whl"))
    return sdist, wheel, direct


def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


def packaged(checkout):
    """List the files that a wheel must have, by the names they have in it."""
    wanted = ["outrider/__init__.py", "outrider/py.typed"]
    for room in ("shared", "worker", "orchestrator", "examples"):
        wanted += [
            f"outrider/{path.relative_to(checkout).as_posix()}"
            for path in (checkout / room).rglob("*")
            if path.suffix in {".py", ".lua", ".json", ".md"}
        ]
    return sorted(wanted)


@pytest.mark.slow
def test_a_wheel_holds_outrider_alone_and_whole(built, checkout):
    _, wheel, _ = built
    info = f"outrider-{PROJECT['version']}.dist-info/"
    assert [name for name in names(wheel) if not name.startswith(info)] == packaged(checkout)


@pytest.mark.slow
def test_a_wheel_from_the_sdist_is_that_of_the_checkout(built):
    _, wheel, direct = built
    assert names(wheel) == names(direct)
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(direct) as other:
        assert all(one.read(name) == other.read(name) for name in one.namelist() if not name.endswith("/RECORD"))


@pytest.mark.slow
def test_the_sdist_holds_no_links(built):
    sdist, _, _ = built
    with tarfile.open(sdist) as archive:
        assert not [member.name for member in archive if member.issym() or member.islnk()]


@pytest.mark.slow
def test_the_wheel_works_outside_the_checkout(built, tmp_path):
    _, wheel, _ = built
    shutil.unpack_archive(wheel, tmp_path, "zip")
    modules = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in names(wheel)
        if name.endswith(".py") and not name.startswith("outrider/examples/")
    ]
    script = f"""
import importlib, outrider
for module in {modules!r}:
    importlib.import_module(module)
print(outrider.__file__)
"""
    shown = run(sys.executable, "-c", script, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path), "PATH": "/nowhere"})
    assert Path(shown.strip()) == tmp_path / "outrider" / "__init__.py"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_is_pinned_and_hashed_and_names_no_host(lock):
    text = lock.read_text(encoding="utf-8")
    pins = re.findall(r"^([a-z0-9._-]+)(==)?", text, re.MULTILINE)
    assert pins
    assert all(pinned for _, pinned in pins)
    assert len(re.findall(r"^[a-z0-9].*\n(?: +--hash=sha256:[0-9a-f]{64}.*\n)+", text, re.MULTILINE)) == len(pins)
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text


def requirement_names(requirements):
    """Give the bare names: `fakeredis[lua]>=2` is fakeredis."""
    return {re.split(r"[^A-Za-z0-9_.-]", text)[0].lower() for text in requirements}


def test_the_locks_hold_what_the_project_asks_for():
    locked = {
        lock.stem: set(re.findall(r"^([a-z0-9._-]+)==", lock.read_text(encoding="utf-8"), re.MULTILINE))
        for lock in LOCKS
    }
    asked = requirement_names(PROJECT["dependencies"])
    assert asked <= locked["runtime"] <= locked["dev"]
    extras = PROJECT["optional-dependencies"]
    assert requirement_names(extras["dev"] + extras["deepagents"]) - {"outrider"} <= locked["dev"]
    assert requirement_names(extras["embedded"]) == locked["redis"]


def test_each_dependency_has_a_lower_bound():
    asked = [*PROJECT["dependencies"], *itertools.chain(*PROJECT["optional-dependencies"].values())]
    assert not [text for text in asked if ">=" not in text and not text.startswith("outrider")]


def test_compose_starts_a_redis_that_keeps_its_word_and_a_worker_after_it():
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    redis, worker = compose["services"]["redis"], compose["services"]["worker"]
    assert "--appendonly yes" in " ".join(redis["command"])
    assert "--maxmemory-policy noeviction" in " ".join(redis["command"])
    assert redis["healthcheck"]["test"]
    assert worker["depends_on"]["redis"]["condition"] == "service_healthy"
    assert (ROOT / worker["build"]["context"] / worker["build"]["dockerfile"]).is_file()
    assert {volume.split(":")[0] for volume in redis["volumes"]} <= set(compose["volumes"])
    assert all(port.startswith("127.0.0.1:") for port in redis["ports"]), "Redis has no password here"


def test_the_image_runs_the_worker_as_nobody_special():
    lines = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    stages = [line for line in lines if line.startswith("FROM ")]
    assert len(stages) > 1
    last = lines[lines.index(stages[-1]) :]
    assert any(line.startswith("USER ") and line.split()[1] not in {"root", "0"} for line in last)
    # The exec form: the worker itself gets the signals.
    assert any(line.startswith('ENTRYPOINT ["outrider"') for line in last)
