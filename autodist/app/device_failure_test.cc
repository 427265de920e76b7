#include "autodist/app/device_failure.h"

#include <gtest/gtest.h>

#include "autodist/base/error.h"

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
    EXPECT_EQ(refused_by(message), Refused::kDevice) << message;
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
    EXPECT_EQ(refused_by(message), Refused::kModelAndData) << message;
  }
}

TEST(DeviceFailure, MemoryThatHasRunOutIsAnother) {
  for (const char* message :
       {"CUDA out of memory. Tried to allocate 20.00 MiB", "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "[enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 8 bytes. Error code 12 (Cannot allocate memory)"}) {
    EXPECT_EQ(refused_by(message), Refused::kMemory) << message;
  }
}

// TorchScript's messages lead to it through the lines of the file's code.
TEST(DeviceFailure, IsSaidByTheLineThatNamesIt) {
  EXPECT_NO_THROW(fail_of_device("train: step 3", "Target 11 is out of bounds.\nmore"));
  EXPECT_NO_THROW(fail_of_device("train: step 3", "CUDA error: out of memory"));
  try {
    fail_of_device("model.pt", "Traceback of\nCUDA error: unspecified launch failure\n");
    ADD_FAILURE() << "is passed over";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeersLost);
    EXPECT_STREQ(error.what(),
                 "model.pt: the device has failed: CUDA error: unspecified launch failure");
  }
}

}  // namespace
}  // namespace autodist::app
