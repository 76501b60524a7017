#include "http/http_probe.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/deadline.h"
#include "base/error.h"
#include "http/client.h"
#include "json/object.h"
#include "json/probe_result.h"
#include "text/ascii.h"

namespace fo::http {
namespace {

using nlohmann::json;

constexpr base::ByteCount kMaxPageBytes = base::kMiB;

// The value at a path; nullptr if there is none.
const json* find_value(const json& root, std::string_view path) {
  const json* at = &root;
  for (const std::string_view name : text::split(path, '.')) {
    if (at->is_object()) {
      const auto found = at->find(name);
      if (found == at->end()) return nullptr;
      at = &*found;
    } else {
      const auto index = base::parse_uint(name);
      if (!at->is_array() || !index || *index >= at->size()) return nullptr;
      at = &(*at)[*index];
    }
  }
  return at;
}

// The first mismatch in an answer's fields; empty if all match.
std::string find_wrong_field(const HttpProbe& probe, const std::string& body) {
  if (probe.fields.empty()) return {};
  json root;
  try {
    root = fo::json::parse(body, kMaxPageBytes);
  } catch (const fo::json::TooDeep& error) {
    if (!json::accept(body)) return "not JSON";
    return "no value at field " + base::quoted(probe.fields.front().first) + ": " + error.what();
  } catch (const fo::json::Misfit&) {
    return "not JSON";
  }
  for (const auto& [path, wanted] : probe.fields) {
    const json* value = find_value(root, path);
    if (value == nullptr || value->is_structured()) {
      return "no value at field " + base::quoted(path);
    }
    const std::string text =
        value->is_string() ? value->get<std::string>() : fo::json::dump(*value);
    if (text != wanted) {
      return "field " + base::quoted(path) + " is " + base::quoted(text) + " instead of " +
             base::quoted(wanted);
    }
  }
  return {};
}

std::string find_wrong_status(const HttpProbe& probe, int status) {
  const bool good = probe.status ? status == *probe.status : status >= 200 && status < 300;
  if (good) return {};
  return "status " + std::to_string(status) + " instead of " +
         (probe.status ? std::to_string(*probe.status) : "2xx");
}

void ask_once(const HttpProbe& probe, HttpAnswer& answer) {
  FetchOptions options;
  options.response_limit = kMaxPageBytes;
  const Response response = fetch("GET", probe.url, base::Deadline::after(probe.timeout), options);
  answer.status = response.status;
  std::string wrong = find_wrong_status(probe, response.status);
  if (wrong.empty()) wrong = find_wrong_field(probe, response.body);
  answer.yes = wrong.empty();
  if (!answer.yes) answer.reason = "fetch " + base::quoted(probe.url) + ": " + wrong;
}

}  // namespace

HttpAnswer probe_http(const HttpProbe& probe) { return os::ask_until_yes(probe, ask_once); }

std::string to_json(const HttpAnswer& answer) {
  return fo::json::probe_result(answer.yes, answer.reason,
                                {{"status", fo::json::or_null(answer.status)}});
}

}  // namespace fo::http
