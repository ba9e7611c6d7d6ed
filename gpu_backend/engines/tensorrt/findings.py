"""What `blink doctor` says of TensorRT: what is installed, whether it serves on this GPU, and what would."""

from __future__ import annotations

from gpu_backend.cuda.chip import Capability
from gpu_backend.cuda.driver import CudaUnavailable, Device
from gpu_backend.cuda.probe import Finding
from gpu_backend.engines.tensorrt.library import INSTALL, INSTALL_FULL, Library, NoLibrary, load_library

RTX_SERVES: tuple[Capability, ...] = ((8, 9), (12, 0))  # of those that blink serves
NO_GPU = "plans can be built here and not run: they need a GPU"


UNTRIED = "nobody has run it on a GPU yet"


def to_install(capability: Capability | None) -> str:
    """What serves on such a GPU, None where there is none, and where it comes from."""
    if capability is None or capability in RTX_SERVES:
        return f"{INSTALL}; {UNTRIED}"
    return f"{INSTALL}, and {INSTALL_FULL}, because TensorRT for RTX does not run on this GPU; {UNTRIED}"


def findings(ordinal: int = 0) -> list[Finding]:
    """The library, and what it does on GPU `ordinal`."""
    capability = capability_of(ordinal)
    try:
        library = load_library()
    except NoLibrary as error:
        return [Finding("library", False, str(error).split(":")[0], to_install(capability))]
    return [Finding("library", True, library.title, ""), _on_gpu(library, capability)]


def capability_of(ordinal: int) -> Capability | None:
    """None where no GPU can serve."""
    try:
        device = Device(ordinal)
    except CudaUnavailable:
        return None
    try:
        return device.capability
    finally:
        device.close()


def _on_gpu(library: Library, capability: Capability | None) -> Finding:
    if capability is None:
        return Finding("plans", False, NO_GPU, "use a GPU that `serving from a GPU` accepts")
    if (reason := library.refuses(capability)) is not None:
        detail, _, mend = reason.partition("; ")
        return Finding("plans", False, detail, f"{mend}; {UNTRIED}")
    return Finding("plans", True, f"the library serves on this GPU; {UNTRIED}", "")
