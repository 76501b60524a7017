#include "base/time_text.h"

#include <array>
#include <ctime>

namespace fo::base {

std::string format_time(std::chrono::system_clock::time_point time) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(since) - seconds;
  const std::time_t count = seconds.count();
  std::tm utc{};
  ::gmtime_r(&count, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S.", &utc);
  const std::string digits = std::to_string(1000 + ms.count());
  return text.data() + digits.substr(1) + "Z";
}

}  // namespace fo::base
