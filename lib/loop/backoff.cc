#include "loop/backoff.h"

#include <algorithm>
#include <utility>

#include "os/file/random.h"

namespace fo::loop {

bool is_transient(const base::Error& error) {
  return error.status() == base::ExitStatus::kUnavailable ||
         error.status() == base::ExitStatus::kTryAgain;
}

Backoff::Backoff(base::Duration first, base::Duration longest)
    : first_(first),
      longest_(longest),
      pause_(first),
      random_(static_cast<std::minstd_rand::result_type>(os::random_bits())) {}

base::Duration Backoff::next() {
  const base::Duration all = std::exchange(pause_, std::min(pause_ * 2, longest_));
  std::uniform_int_distribution<base::Duration::rep> between(all.count() / 2, all.count());
  return base::Duration(between(random_));
}

}  // namespace fo::loop
