// Errors inside this library: the CUresult is thrown, and caught in the exported function.
#pragma once

#include "cuda/abi.h"

namespace fo::simcuda {

using namespace cuda::abi;

struct Failure {
  Result result;
};

inline void require(bool condition, Result otherwise = Result::kInvalidValue) {
  if (!condition) throw Failure{otherwise};
}

/// The failure for an errno: kOutOfMemory for a full resource, else kOperatingSystem.
Failure failure_of_errno(int err);

struct ResultText {
  Result result;
  const char* name;  // as in cuda.h
  const char* text;
};

/// nullptr for a value that this library never returns.
const ResultText* find_result_text(Result result);

}  // namespace fo::simcuda
