#include "plan/capacity.h"

#include <algorithm>
#include <cmath>

#include "plan/argument.h"

namespace fo::plan {
namespace {

void check_residence(Seconds residence) {
  check_positive("residence (seconds)", residence.count(), 2 * kMaxCount * kDay.count());
}

}  // namespace

Seconds residence_time(Seconds ttft, double tokens, Seconds tpot) {
  check_time("ttft", ttft);
  check_positive("tokens", tokens);
  check_time("tpot", tpot);
  return ttft + tokens * tpot;
}

std::uint64_t concurrency_of(const Replica& replica, Seconds tpot) {
  check_positive("kv-tokens", replica.kv_tokens);
  check_range("sequence", replica.sequence_tokens, 1, kMaxCount);
  check_count("slots", replica.slots);
  check_time("tpot", tpot);
  std::uint64_t least = std::min(
      static_cast<std::uint64_t>(replica.kv_tokens / replica.sequence_tokens), replica.slots);
  if (replica.measured.empty()) return least;
  std::uint64_t within = 0;
  for (const MeasuredTpot& one : replica.measured) {
    check_count("measured concurrency", one.concurrency);
    check_time("measured tpot", one.tpot);
    if (one.tpot <= tpot) within = std::max(within, one.concurrency);
  }
  return std::min(least, within);
}

double carried_rate(std::uint64_t replicas, std::uint64_t concurrency, Seconds residence) {
  check_count("replicas", replicas);
  check_range("concurrency", static_cast<double>(concurrency), 0, kMaxCount);
  check_residence(residence);
  return static_cast<double>(replicas) * static_cast<double>(concurrency) / residence.count();
}

std::optional<std::uint64_t> replicas_needed(double rate, std::uint64_t concurrency,
                                             Seconds residence) {
  check_positive("rate", rate);
  check_range("concurrency", static_cast<double>(concurrency), 0, kMaxCount);
  check_residence(residence);
  if (concurrency == 0) return std::nullopt;
  const double exact = rate * residence.count() / static_cast<double>(concurrency);
  // A whole number must not become the next one by an error in the last digit.
  const double whole = std::max(1.0, std::ceil(exact * (1 - 1e-12)));
  if (whole > kMaxCount) return std::nullopt;
  return static_cast<std::uint64_t>(whole);
}

}  // namespace fo::plan
