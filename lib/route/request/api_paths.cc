#include "route/request/api_paths.h"

#include <algorithm>
#include <array>

#include "text/ascii.h"

namespace fo::route {
namespace {

constexpr std::string_view kResponsesPrefix = "/v1/responses/";
constexpr std::string_view kModelsPrefix = "/v1/models/";
constexpr std::string_view kAudioPrefix = "/v1/audio/";

// The methods as the header Allow names them.
constexpr std::string_view kGet = "GET, HEAD";

struct Entry {
  std::string_view path;
  std::string_view methods;
  Api api;
};

constexpr std::array<Entry, 10> kPaths{{{"/v1/chat/completions", "POST", Api::kChat},
                                        {"/v1/completions", "POST", Api::kCompletions},
                                        {"/v1/responses", "POST", Api::kResponses},
                                        {"/v1/models", kGet, Api::kModels},
                                        {"/v1/embeddings", "POST", Api::kOther},
                                        {"/v1/messages", "POST", Api::kOther},
                                        {"/v1/rerank", "POST", Api::kOther},
                                        {"/v1/score", "POST", Api::kOther},
                                        {"/tokenize", "POST", Api::kOther},
                                        {"/detokenize", "POST", Api::kOther}}};

// Whether an engine could read the path as another one.
bool is_ambiguous(std::string_view path) {
  std::size_t begin = 1;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view segment = path.substr(begin, end - begin);
    const bool is_last = end == path.size();
    if (segment == "." || segment == ".." || (segment.empty() && !is_last)) return true;
    begin = end + 1;
  }
  return false;
}

// The entry of a path of kResponse, of which `rest` follows the prefix.
Entry entry_of_response(std::string_view rest) {
  constexpr std::string_view kCancel = "/cancel";
  constexpr std::string_view kInput = "/input_items";
  Entry entry{rest, "GET, DELETE", Api::kResponse};
  if (rest.ends_with(kCancel)) {
    rest.remove_suffix(kCancel.size());
    entry.methods = "POST";
  } else if (rest.ends_with(kInput)) {
    rest.remove_suffix(kInput.size());
    entry.methods = "GET";
  }
  if (!is_plain_name(rest)) entry.api = Api::kNotFound;
  return entry;
}

// The entry of any path; one of kNotFound has no methods that matter.
Entry find_entry(std::string_view path) {
  for (const Entry& entry : kPaths) {
    if (entry.path == path) return entry;
  }
  if (path.starts_with(kResponsesPrefix)) {
    return entry_of_response(path.substr(kResponsesPrefix.size()));
  }
  if (path.starts_with(kModelsPrefix) && path.size() > kModelsPrefix.size()) {
    return {path, kGet, Api::kModel};
  }
  if (path.starts_with(kAudioPrefix) && is_plain_name(path.substr(kAudioPrefix.size()))) {
    return {path, "POST", Api::kOther};
  }
  return {path, "", Api::kNotFound};
}

bool has_method(std::string_view methods, std::string_view method) {
  const std::string list = ", " + std::string(methods) + ",";
  return list.find(", " + std::string(method) + ",") != list.npos;
}

}  // namespace

Api find_api(std::string_view method, std::string_view path,
             const std::vector<std::string>& allowed) {
  if (is_ambiguous(path)) return Api::kNotFound;
  if (std::find(allowed.begin(), allowed.end(), path) != allowed.end()) return Api::kOther;
  const Entry entry = find_entry(path);
  if (entry.api == Api::kNotFound) return Api::kNotFound;
  return has_method(entry.methods, method) ? entry.api : Api::kWrongMethod;
}

std::string methods_of(std::string_view path) { return std::string(find_entry(path).methods); }

std::string_view item_of(Api api, std::string_view path) {
  if (api == Api::kModel) return path.substr(kModelsPrefix.size());
  std::string_view rest = path.substr(kResponsesPrefix.size());
  return rest.substr(0, rest.find('/'));
}

bool is_plain_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return text::is_letter_or_digit(c) || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace fo::route
