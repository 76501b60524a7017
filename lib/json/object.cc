#include "json/object.h"

#include <cstddef>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace fo::json {

using nlohmann::json;

namespace {

// The parser can report the depth to a callback, but with a callback it scans a whole list again at
// the end of each object in it: 16 MiB of "{}," would take hours.
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
  // The parser reads a NUL as the end of the text.
  if (text.find('\0') != text.npos) throw Misfit("a NUL byte");
  check_depth(text);
}

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

std::optional<std::uint64_t> number_in(const json& value, const char* key) {
  static const json empty = 0U;
  const json& number = member(value, key, empty, "a non-negative integer");
  if (&number == &empty) return std::nullopt;
  return number.get<std::uint64_t>();
}

std::string needed_text(const json& value, const char* key) {
  std::string text = text_in(value, key);
  if (find(value, key) == nullptr) throw Misfit(std::string("missing ") + key);
  return text;
}

std::uint64_t needed_number(const json& value, const char* key) {
  const std::optional<std::uint64_t> number = number_in(value, key);
  if (!number) throw Misfit(std::string("missing ") + key);
  return *number;
}

void with_object(std::string_view text, base::ByteCount max_bytes,
                 const std::function<std::string()>& what,
                 const std::function<void(const json&)>& read, base::ExitStatus status) {
  try {
    read(parse_object(text, max_bytes));
  } catch (const Misfit& misfit) {
    throw base::Error(status, what() + ": " + misfit.what());
  } catch (const json::exception&) {
    throw base::Error(status, what() + ": a member is missing or has another type");
  }
}

std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace fo::json
