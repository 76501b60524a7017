// What the readers of this room's JSON files share: one value after the other, by how deep it lies,
// and how a file is refused. Nothing is kept of what nobody asked for.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/strong.h"

namespace fo::weights {

/// Throws Error(kBadData): "read 'file': reason".
[[noreturn]] inline void fail(const std::string& file, const std::string& reason) {
  throw base::Error(base::ExitStatus::kBadData, "read " + base::quoted(file) + ": " + reason);
}

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
class JsonReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// `subject` begins the reason where a text is no JSON.
  explicit JsonReader(const std::string& file, std::string subject = {})
      : file_(file), subject_(std::move(subject)) {}

  void read(std::string_view text) {
    // To nlohmann::json a NUL is the end of the text.
    if (const auto nul = text.find('\0'); nul != text.npos) refuse_at(nul + 1);
    nlohmann::json::sax_parse(text, this);
  }

  bool key(std::string& name) final {
    if (skipped_ == 0) {
      key_ = std::move(name);
      on_key();
    }
    return true;
  }
  bool start_object(std::size_t) final { return start({Kind::kObject, "an object"}); }
  bool start_array(std::size_t) final { return start({Kind::kList, "a list"}); }
  bool end_object() final { return end(); }
  bool end_array() final { return end(); }
  bool string(std::string& text) final { return scalar({Kind::kText, "text", std::move(text)}); }
  bool number_unsigned(number_unsigned_t number) final {
    return scalar({Kind::kNumber, "a number", {}, number});
  }
  bool null() final { return scalar({Kind::kOther, "null"}); }
  bool boolean(bool) final { return scalar({Kind::kOther, "a boolean"}); }
  bool number_integer(number_integer_t) final {
    return scalar({Kind::kOther, "a negative number"});
  }
  bool number_float(number_float_t, const std::string&) final {
    return scalar({Kind::kOther, "a number that is not a non-negative integer"});
  }
  bool binary(binary_t&) final { return scalar({Kind::kOther, "binary data"}); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) final {
    refuse_at(position);
  }

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
  [[noreturn]] void refuse_at(std::size_t position) const {
    fail(file_, subject_ + "not JSON at byte " + std::to_string(position));
  }
  bool scalar(JsonValue value) {
    if (skipped_ == 0) on_value(std::move(value));
    return true;
  }
  bool start(JsonValue value) {
    if (skipped_ == 0 && on_value(std::move(value))) {
      ++depth_;
    } else {
      ++skipped_;
    }
    return true;
  }
  bool end() {
    if (skipped_ > 0) {
      --skipped_;
    } else {
      --depth_;
      on_end();
    }
    return true;
  }

  const std::string& file_;
  const std::string subject_;
  std::size_t depth_ = 0;
  std::size_t skipped_ = 0;
  std::string key_;
};

}  // namespace fo::weights
