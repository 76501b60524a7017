// Environment variables of a test, which are as before when it ends.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>

namespace fo::test {

class Environment {
 public:
  /// Begins without these variables.
  Environment(std::initializer_list<const char*> without = {}) {
    for (const char* name : without) unset(name);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : before_) {
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
    }
  }

  void set(const std::string& name, const std::string& value) {
    keep(name);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  void unset(const std::string& name) {
    keep(name);
    ::unsetenv(name.c_str());
  }

 private:
  void keep(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    before_.try_emplace(name, value ? std::optional<std::string>(value) : std::nullopt);
  }

  std::map<std::string, std::optional<std::string>> before_;
};

/// Begins with one variable set.
class ScopedVariable : public Environment {
 public:
  ScopedVariable(const std::string& name, const std::string& value) { set(name, value); }
};

}  // namespace fo::test
