#include "text/time_text.h"

#include <array>
#include <ctime>

#include "base/units.h"
#include "text/ascii.h"

namespace fo::text {

std::string format_time(WallTime time) {
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

std::optional<WallTime> parse_time(std::string_view text) {
  constexpr std::string_view kShape = "dddd-dd-ddTdd:dd:dd.dddZ";
  if (text.size() != kShape.size()) return std::nullopt;
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    if (kShape[i] == 'd' ? !is_digit(text[i]) : text[i] != kShape[i]) return std::nullopt;
  }
  const auto field = [&](std::size_t at, std::size_t size) {
    return static_cast<int>(*base::parse_uint(text.substr(at, size)));
  };
  std::tm utc{};
  utc.tm_year = field(0, 4) - 1900;
  utc.tm_mon = field(5, 2) - 1;
  utc.tm_mday = field(8, 2);
  utc.tm_hour = field(11, 2);
  utc.tm_min = field(14, 2);
  utc.tm_sec = field(17, 2);
  const std::time_t seconds = ::timegm(&utc);
  // The clock counts nanoseconds and ends in the year 2262.
  constexpr auto kEnd =
      std::chrono::floor<std::chrono::seconds>(WallTime::max()).time_since_epoch();
  if (seconds < 0 || seconds >= kEnd.count()) return std::nullopt;
  const WallTime time =
      std::chrono::system_clock::from_time_t(seconds) + std::chrono::milliseconds(field(20, 3));
  // timegm accepts the 31st of February as a day of March.
  if (format_time(time) != text) return std::nullopt;
  return time;
}

}  // namespace fo::text
