"""A ring in GPU memory, exported for an RDMA device (GPUDirect RDMA over dma-buf).

Has run over fakes of the driver and of libibverbs alone: no machine of this project has both a GPU and an
RDMA device. Written against the CUDA driver API's reference (cuMemGetHandleForAddressRange,
cuPointerSetAttribute, CUdevice_attribute) and ibv_reg_dmabuf_mr(3).
"""

from __future__ import annotations

from gpu_backend.cuda.driver import CudaUnavailable, Device, api, call
from gpu_backend.rdma.target import ExportedMemory


def export(device: Device, address: int, n_bytes: int) -> ExportedMemory:
    """Exports `n_bytes` at `address`, both multiples of the page size.

    Raises CudaUnavailable when the GPU or its driver cannot export memory, CudaError when this cannot be.
    """
    driver = api()
    attribute = driver.CUdevice_attribute
    if not device.attribute(attribute.CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED):
        raise CudaUnavailable(
            f"{device.name} cannot export memory as a dma-buf: use the driver's open kernel modules on "
            "Linux 5.12 or later, or serve from --transport shm"
        )
    ordering = driver.CUGPUDirectRDMAWritesOrdering.CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER
    ordered = device.attribute(attribute.CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >= int(ordering)
    # Copies by this process and the RDMA device's accesses to one allocation are otherwise not synchronized.
    sync = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    call("cuPointerSetAttribute", 1, sync, address)
    kind = driver.CUmemRangeHandleType.CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
    descriptor = call("cuMemGetHandleForAddressRange", address, n_bytes, kind, 0)
    return ExportedMemory(int(descriptor), n_bytes, read_back_needed=not ordered)
