// A set of waiting ids that are taken in rotation: no id is taken twice while another one waits.
// Pure.
#pragma once

#include <set>
#include <string>

namespace fo::canary {

class Turns {
 public:
  void add(const std::string& id) { ids_.insert(id); }
  void erase(const std::string& id) { ids_.erase(id); }
  [[nodiscard]] bool empty() const { return ids_.empty(); }
  /// Removes the next id, and returns it. Must not be called when empty().
  std::string take() {
    auto next = ids_.upper_bound(last_);
    if (next == ids_.end()) next = ids_.begin();
    last_ = *next;
    ids_.erase(next);
    return last_;
  }

 private:
  std::set<std::string> ids_;
  std::string last_;
};

}  // namespace fo::canary
