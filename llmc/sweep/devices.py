"""Which devices the cells that run side by side may use."""

from __future__ import annotations

from collections.abc import Sequence

from llmc.errors import UsageError


def slots(jobs: int | None, gpus: Sequence[str]) -> list[dict[str, str]]:
    """Return the environment of every place for a cell. ``gpus`` has one entry a place, as ``0`` or ``0+1``.

    UsageError when there would be more cells at a time than places with a device.
    """
    if not gpus:
        return [{} for _ in range(jobs or 1)]
    if jobs is not None and jobs > len(gpus):
        raise UsageError(
            f"--jobs {jobs} with {len(gpus)} {'places' if len(gpus) > 1 else 'place'} on GPUs: cells would share one",
            "give one GPU (or several, as 0+1) for every job, or fewer jobs",
        )
    return [_visible(devices) for devices in gpus[: jobs or len(gpus)]]


def _visible(devices: str) -> dict[str, str]:
    """The variables by which CUDA, ROCm, Vulkan and SYCL backends are shown some devices and no others."""
    listed = ",".join(part.strip() for part in devices.split("+"))
    if not all(part.isalnum() or "-" in part for part in listed.split(",")):
        raise UsageError(f"{devices!r} is no list of GPUs", "write for example --gpus 0,1 or --gpus 0+1,2+3")
    visible = {"CUDA_VISIBLE_DEVICES": listed, "HIP_VISIBLE_DEVICES": listed, "GGML_VK_VISIBLE_DEVICES": listed}
    return {**visible, "ONEAPI_DEVICE_SELECTOR": f"level_zero:{listed}"}
