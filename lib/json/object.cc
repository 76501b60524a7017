#include "json/object.h"

#include <cstddef>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace fo::json {

using nlohmann::json;

namespace {

// The parser would report the depth to a callback, but with one it looks through a list again at
// the end of each object in it: 16 MiB of "{}," took hours.
void check_depth(std::string_view text) {
  int depth = 0;
  bool is_in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (is_in_string) {
      if (c == '\\') ++at;
      is_in_string = c != '"';
    } else if (c == '"') {
      is_in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) throw TooDeep("nested too deep");
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
}

void check_text(std::string_view text, base::ByteCount max_bytes) {
  if (text.size() > max_bytes) throw Misfit("too long");
  // The parser takes a NUL for the end of the text.
  if (text.find('\0') != text.npos) throw Misfit("a NUL byte");
  check_depth(text);
}

class MemberScan final : public nlohmann::json_sax<json> {
 public:
  using OnMember = std::function<void(const std::string&, const std::string*)>;

  explicit MemberScan(const OnMember& on_member) : on_member_(on_member) {}

  bool key(std::string& name) override {
    if (depth_ == 1) key_.swap(name);
    return true;
  }
  bool start_object(std::size_t) override { return start(true); }
  bool start_array(std::size_t) override { return start(false); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool string(std::string& text) override { return value(&text); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_float(number_float_t, const std::string&) override { return value(); }
  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    throw Misfit("not JSON");
  }
  [[nodiscard]] bool is_object() const { return is_object_; }

 private:
  bool value(const std::string* text = nullptr) {
    if (depth_ == 1 && is_object_) on_member_(key_, text);
    return true;
  }
  bool start(bool is_object) {
    if (depth_ == 0) is_object_ = is_object;
    value();
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }

  const OnMember& on_member_;
  // Key of the value that was started last in the outermost object.
  std::string key_;
  bool is_object_ = false;
  int depth_ = 0;
};

// The member, whose type must be that of `empty`; `empty` if it is missing or null.
const json& member(const json& value, const char* key, const json& empty, const char* expected) {
  if (!value.is_object()) throw Misfit("expected an object");
  const json* found = find(value, key);
  if (found == nullptr) return empty;
  if (found->type() != empty.type()) throw Misfit(std::string(key) + ": expected " + expected);
  return *found;
}

}  // namespace

json parse(std::string_view text, base::ByteCount max_bytes) {
  check_text(text, max_bytes);
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) throw Misfit("not JSON");
  return value;
}

json parse_object(std::string_view text, base::ByteCount max_bytes) {
  json object = parse(text, max_bytes);
  if (!object.is_object()) throw Misfit("expected an object");
  return object;
}

void scan_object(
    std::string_view text, base::ByteCount max_bytes,
    const std::function<void(const std::string& key, const std::string* text)>& on_member) {
  check_text(text, max_bytes);
  MemberScan scan(on_member);
  json::sax_parse(text, &scan);
  if (!scan.is_object()) throw Misfit("expected an object");
}

std::optional<json> find_object(std::string_view text, base::ByteCount max_bytes) {
  try {
    return parse_object(text, max_bytes);
  } catch (const Misfit&) {
    return std::nullopt;
  }
}

const json* find(const json& value, const char* key) {
  const auto at = value.find(key);
  return at == value.end() || at->is_null() ? nullptr : &*at;
}

const json& object_in(const json& value, const char* key) {
  static const json empty = json::object();
  return member(value, key, empty, "an object");
}

const json& list_in(const json& value, const char* key) {
  static const json empty = json::array();
  return member(value, key, empty, "a list");
}

std::string text_in(const json& value, const char* key) {
  static const json empty = "";
  return member(value, key, empty, "a string").get<std::string>();
}

bool flag_in(const json& value, const char* key) {
  static const json empty = false;
  return member(value, key, empty, "true or false").get<bool>();
}

void with_object(std::string_view text, base::ByteCount max_bytes,
                 const std::function<std::string()>& what,
                 const std::function<void(const json&)>& read) {
  try {
    read(parse_object(text, max_bytes));
  } catch (const Misfit& misfit) {
    throw base::Error(base::ExitStatus::kProtocol, what() + ": " + misfit.what());
  } catch (const json::exception&) {
    throw base::Error(base::ExitStatus::kProtocol, what() + ": not JSON");
  }
}

}  // namespace fo::json
