// What a call of the simulated driver's rooms answers, as the library would.
#pragma once

#include "simcuda/result.h"

namespace fo::simcuda {

template <typename Action>
Result result_of(Action action) {
  try {
    action();
  } catch (const Failure& failure) {
    return failure.result;
  }
  return Result::kSuccess;
}

}  // namespace fo::simcuda
