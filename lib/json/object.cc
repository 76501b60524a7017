#include "json/object.h"

#include <nlohmann/json.hpp>

namespace fo::json {

using nlohmann::json;

json parse_object(std::string_view text,
                  const std::function<void(const std::string& reason)>& refuse) {
  bool too_deep = false;
  const auto watch = [&](int depth, json::parse_event_t, const json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  json object = json::parse(text, watch, false);
  if (too_deep) refuse("nested too deeply");
  // nlohmann::json takes a NUL for the end of the text.
  if (!object.is_object() || text.find('\0') != text.npos) refuse("not a JSON object");
  return object;
}

const json* find(const json& object, const char* key) {
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

}  // namespace fo::json
