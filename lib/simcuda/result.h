// How a call fails inside this library: by throwing the CUresult, caught where the call came in.
#pragma once

#include "simcuda/abi.h"

namespace fo::simcuda {

struct Failure {
  Result result;
};

inline void require(bool condition, Result otherwise = Result::kInvalidValue) {
  if (!condition) throw Failure{otherwise};
}

/// The failure that an errno stands for: out of memory for everything that is full, else 304.
Failure failure_of_errno(int err);

struct ResultText {
  Result result;
  const char* name;  // as in cuda.h
  const char* text;
};

/// nullptr: a value that this library never answers.
const ResultText* find_result_text(Result result);

}  // namespace fo::simcuda
