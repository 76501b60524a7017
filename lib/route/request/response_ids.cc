#include "route/request/response_ids.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "route/request/api_paths.h"

namespace fo::route {

void ResponseIds::add(const std::string& response_id, const std::string& worker_id) {
  if (response_id.empty()) return;
  if (const auto known = places_.find(response_id); known != places_.end()) {
    order_.erase(known->second);
    places_.erase(known);
  }
  order_.emplace_back(response_id, worker_id);
  places_[response_id] = std::prev(order_.end());
  if (order_.size() <= max_ids_) return;
  places_.erase(order_.front().first);
  order_.pop_front();
}

std::string ResponseIds::worker_of(const std::string& response_id) const {
  const auto found = places_.find(response_id);
  return found == places_.end() ? std::string() : found->second->second;
}

std::vector<std::pair<std::string, std::string>> ResponseIds::latest(std::size_t count) const {
  const std::size_t kept = std::min(count, order_.size());
  return {std::prev(order_.end(), static_cast<std::ptrdiff_t>(kept)), order_.end()};
}

ApiError unknown_response(const std::string& id) {
  return {.status = 404,
          .message = "response " + base::quoted(id) + ": not found",
          .code = "response_not_found"};
}

std::string find_response_id(std::string_view answer) {
  constexpr std::string_view kMember = "\"id\"";
  constexpr std::string_view kBegin = "\"resp";
  constexpr std::size_t kMaxIdBytes = 256;
  for (std::size_t at = answer.find(kMember); at != answer.npos;
       at = answer.find(kMember, at + 1)) {
    const std::size_t value = answer.find_first_not_of(" :\t\r\n", at + kMember.size());
    if (value == answer.npos || answer.substr(value, kBegin.size()) != kBegin) continue;
    const std::size_t end = answer.find('"', value + 1);
    if (end == answer.npos || end - value > kMaxIdBytes) return {};
    const std::string_view id = answer.substr(value + 1, end - value - 1);
    return is_plain_name(id) ? std::string(id) : std::string();
  }
  return {};
}

}  // namespace fo::route
