// What the readers of this room's JSON files share: one value after the other, by how deep it lies,
// and how a file is refused. Nothing is kept of what nobody asked for.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "base/strong.h"

namespace fo::json {

/// Throws Error(kBadData): "read 'file': reason".
[[noreturn]] void refuse_file(const std::string& file, const std::string& reason);

/// What JSON may have for a value; containers come as their beginning.
struct JsonValue {
  enum class Kind { kText, kNumber, kObject, kList, kOther };
  Kind kind;
  /// For messages: "a list".
  const char* name;
  std::string text = {};
  /// Of kNumber: a non-negative integer.
  base::ByteCount number = 0;
};

/// Tells of each value by how many containers it is in, its key in the innermost of them, and
/// nothing of what lies within a value that was not entered.
class JsonReader {
 public:
  /// `subject` begins the reason where a text is no JSON.
  explicit JsonReader(const std::string& file, std::string subject = {})
      : file_(file), subject_(std::move(subject)) {}

  void read(std::string_view text);

 protected:
  using Kind = JsonValue::Kind;
  ~JsonReader() = default;
  /// A key of an object that was entered.
  virtual void on_key() {}
  /// True: enter the container.
  virtual bool on_value(JsonValue value) = 0;
  /// The end of a container that was entered; depth() is what it was at its beginning.
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
