// Names of results, and the results for errnos.
#include "simcuda/result.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace fo::simcuda {
namespace {

TEST(ResultText, NamesAreThoseOfCudaH) {
  EXPECT_STREQ(find_result_text(Result::kSuccess)->name, "CUDA_SUCCESS");
  EXPECT_STREQ(find_result_text(Result::kOutOfMemory)->name, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_STREQ(find_result_text(Result{214})->name, "CUDA_ERROR_ECC_UNCORRECTABLE");
  EXPECT_STREQ(find_result_text(Result{36})->name, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER");
  EXPECT_STREQ(find_result_text(Result{807})->name, "CUDA_ERROR_MPS_SERVER_NOT_READY");
  EXPECT_EQ(find_result_text(Result{4321}), nullptr);
  EXPECT_EQ(find_result_text(Result{35}), nullptr) << "cuda.h has no name for it";
}

TEST(ResultText, WhatIsFullIsOutOfMemory) {
  EXPECT_EQ(failure_of_errno(ENOSPC).result, Result::kOutOfMemory);
  EXPECT_EQ(failure_of_errno(ENOMEM).result, Result::kOutOfMemory);
  EXPECT_EQ(failure_of_errno(EBADF).result, Result::kOperatingSystem);
}

TEST(Require, ThrowsTheResultThatIsAskedFor) {
  EXPECT_NO_THROW(require(true));
  try {
    require(false, Result::kInvalidHandle);
    ADD_FAILURE();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.result, Result::kInvalidHandle);
  }
}

}  // namespace
}  // namespace fo::simcuda
