#include "json/peer_json.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace fo::json {
namespace {

using nlohmann::json;

constexpr int kMaxNesting = 64;

}  // namespace

json parse_object(std::string_view text, std::size_t max_bytes) {
  if (text.size() > max_bytes) throw Misfit("too long");
  // The parser takes a NUL for the end of the text.
  if (text.find('\0') != text.npos) throw Misfit("a NUL byte");
  const auto check_depth = [](int depth, json::parse_event_t, const json&) {
    if (depth > kMaxNesting) throw Misfit("nested too deep");
    return true;
  };
  json object = json::parse(text, check_depth, false);
  if (object.is_discarded()) throw Misfit("not JSON");
  if (!object.is_object()) throw Misfit("expected an object");
  return object;
}

void with_object(std::string_view text, std::size_t max_bytes,
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
