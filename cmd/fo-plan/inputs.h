// The parameters of a verb: their declaration, and their values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/capacity.h"
#include "plan/times.h"

namespace fo::fo_plan {

/// The form of a parameter's text.
enum class Kind {
  kNumber,
  kCount,         // a whole number
  kFraction,      // 0.03 or 3%
  kDuration,      // in seconds
  kSize,          // in bytes
  kMeasurements,  // N:DURATION,...
};

enum class Need { kRequired, kOptional };

/// A parameter with a preset is optional.
struct Parameter {
  const char* name;
  Kind kind;
  const char* description;
  Need need = Need::kRequired;
  const char* preset = nullptr;
  /// The parameters without which a value of this one would have no effect.
  std::vector<const char*> needs = {};
};

/// The number that `text` stands for, at least 0 and finite. Throws Error(kUsage): "'text':
/// reason".
double read_number(Kind kind, const std::string& text);

/// The columns of a table and the keys of JSON have underscores, and a unit where the option's
/// value has one: "repair_s".
std::string column_name(const Parameter& parameter);

/// The values of a verb's parameters.
class Inputs {
 public:
  /// Throws Error(kUsage), "'text': reason", for a text that is not valid.
  void set(const Parameter& parameter, const std::string& text);
  void set_number(const Parameter& parameter, double number);

  /// Whether set() was called.
  [[nodiscard]] bool is_set(const std::string& name) const { return texts_.contains(name); }
  /// The parameter must have a value.
  [[nodiscard]] double number(const std::string& name) const { return numbers_.at(name); }
  [[nodiscard]] std::uint64_t count(const std::string& name) const;
  [[nodiscard]] plan::Seconds seconds(const std::string& name) const;
  /// nullopt if it has none.
  [[nodiscard]] std::optional<double> find(const std::string& name) const;
  [[nodiscard]] const std::vector<plan::MeasuredTpot>& measured() const { return measured_; }
  /// The values as they are written on the command line.
  [[nodiscard]] const std::map<std::string, std::string>& texts() const { return texts_; }

 private:
  std::map<std::string, std::string> texts_;
  std::map<std::string, double> numbers_;
  std::vector<plan::MeasuredTpot> measured_;
};

}  // namespace fo::fo_plan
