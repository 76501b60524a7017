#include "json/object.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace fo::json {

using nlohmann::json;

json parse(std::string_view text, base::ByteCount max_bytes) {
  if (text.size() > max_bytes) throw Misfit("too long");
  // The parser takes a NUL for the end of the text.
  if (text.find('\0') != text.npos) throw Misfit("a NUL byte");
  const auto check_depth = [](int depth, json::parse_event_t, const json&) {
    if (depth > kMaxDepth) throw TooDeep("nested too deep");
    return true;
  };
  json value = json::parse(text, check_depth, false);
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
