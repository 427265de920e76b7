#include "autodist/app/device_failure.h"

#include <gtest/gtest.h>

namespace autodist::app {
namespace {

TEST(DeviceFailure, IsWhatAnotherStartMayDoWithout) {
  for (const char* message :
       {"CUDA error: uncorrectable ECC error encountered",
        "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be …",
        "CUDA error: unspecified launch failure", "CUDA error: device not ready",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(…)`",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled system error",
        "NCCL Error 2: unhandled system error"}) {
    EXPECT_TRUE(is_device_failure(message)) << message;
    EXPECT_FALSE(is_out_of_memory(message)) << message;
  }
}

TEST(DeviceFailure, IsNoneWhereTheSameWouldBeRefusedAgain) {
  for (const char* message :
       {"Target 11 is out of bounds.",
        "mat1 and mat2 shapes cannot be multiplied (64x512 and 500x10)",
        "CUDA error: no kernel image is available for execution on the device",
        "CUDA error: device-side assert triggered", "CUDA error: invalid device ordinal",
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
        "CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm(…)`"}) {
    EXPECT_FALSE(is_device_failure(message)) << message;
    EXPECT_FALSE(is_out_of_memory(message)) << message;
  }
}

TEST(DeviceFailure, MemoryThatHasRunOutIsAnother) {
  for (const char* message :
       {"CUDA out of memory. Tried to allocate 20.00 MiB", "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "[enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 8 bytes. Error code 12 (Cannot allocate memory)",
        "step 3: cuda:0 of rank 1 has no memory left at op 7 (aten::mm in 'head')"}) {
    EXPECT_TRUE(is_out_of_memory(message)) << message;
    EXPECT_FALSE(is_device_failure(message)) << message;
  }
}

}  // namespace
}  // namespace autodist::app
