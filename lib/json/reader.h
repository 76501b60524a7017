// The base class of readers of JSON files. It reports one value after the other with its depth,
// refuses invalid files, and stores no values.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "base/strong.h"

namespace fo::json {

/// Throws Error(kBadData): "read 'file': reason".
[[noreturn]] void refuse_file(const std::string& file, const std::string& reason);

/// A value of JSON. A container (a list or an object) is reported at its beginning.
struct JsonValue {
  enum class Kind { kText, kNumber, kObject, kList, kOther };
  Kind kind;
  /// Name of the kind in messages: "a list".
  const char* name;
  std::string text = {};
  /// The value of kNumber: a non-negative integer.
  base::ByteCount number = 0;
};

/// Reports each value with its depth and its key in the innermost container. Values inside a
/// container that was not entered are skipped.
class JsonReader {
 public:
  /// `file`, which must outlive this object, is the name in messages; `subject` begins the reason
  /// if a text is not JSON.
  explicit JsonReader(const std::string& file, std::string subject = {})
      : file_(file), subject_(std::move(subject)) {}

  /// Reports the values of one text. Throws Error(kBadData) if it is not JSON.
  void read(std::string_view text);

 protected:
  using Kind = JsonValue::Kind;
  ~JsonReader() = default;
  /// Called for each key of an object that was entered, before its value.
  virtual void on_key() {}
  /// Called for each value. Returns true to enter a container; the result is ignored for other
  /// values.
  virtual bool on_value(JsonValue value) = 0;
  /// Called at the end of an entered container; depth() is the same as at its beginning.
  virtual void on_end() {}

  [[nodiscard]] std::size_t depth() const { return depth_; }
  [[nodiscard]] const std::string& last_key() const { return key_; }
  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  class Sax;

  [[noreturn]] void refuse_at(std::size_t position) const;

  const std::string& file_;
  const std::string subject_;
  std::size_t depth_ = 0;
  std::size_t skipped_ = 0;
  std::string key_;
};

}  // namespace fo::json
