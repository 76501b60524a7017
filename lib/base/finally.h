// Calls a function at the end of a scope, however the scope ends.
#pragma once

#include <utility>

namespace fo::base {

/// `function` must not throw.
template <typename Function>
class [[nodiscard]] Finally {
 public:
  explicit Finally(Function function) : function_(std::move(function)) {}
  ~Finally() { function_(); }
  Finally(const Finally&) = delete;
  Finally& operator=(const Finally&) = delete;

 private:
  const Function function_;
};

}  // namespace fo::base
