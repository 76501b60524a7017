// splitmix64 over a counter: any output is computed without the earlier ones, identically on every
// machine and with every library.
#pragma once

#include <cstdint>

namespace fo::refengine {

inline constexpr std::uint64_t kSplitmixStep = 0x9e3779b97f4a7c15u;

/// The first output of splitmix64 seeded with `state`; output n (from 0) is that of state + n *
/// kSplitmixStep.
constexpr std::uint64_t splitmix(std::uint64_t state) {
  std::uint64_t x = state + kSplitmixStep;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace fo::refengine
