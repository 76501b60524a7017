// Which worker made which answer of /v1/responses: only that worker knows the id. Pure.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "route/request/api_error.h"

namespace fo::route {

class ResponseIds {
 public:
  /// `max_ids` is the number of ids that are kept, the latest ones.
  explicit ResponseIds(std::size_t max_ids = 100'000) : max_ids_(max_ids) {}

  void add(const std::string& response_id, const std::string& worker_id);
  /// The id of the worker; empty if the response is unknown.
  [[nodiscard]] std::string worker_of(const std::string& response_id) const;
  /// The latest `count` responses and their workers, the oldest first.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> latest(std::size_t count) const;

 private:
  std::size_t max_ids_;
  /// Responses and their workers, the oldest first.
  std::list<std::pair<std::string, std::string>> order_;
  std::unordered_map<std::string, std::list<std::pair<std::string, std::string>>::iterator> places_;
};

/// The error for a response that no worker knows any more.
ApiError unknown_response(const std::string& id);

/// The id in the beginning of an answer of /v1/responses, in one piece or streamed: the first
/// member "id" whose value begins with "resp"; empty if there is none.
std::string find_response_id(std::string_view answer);

}  // namespace fo::route
