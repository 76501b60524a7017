// The result of a call inside the simulated driver, as its library would return it.
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
