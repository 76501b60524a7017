#include "route/request/api_paths.h"

#include <algorithm>
#include <array>

#include "text/ascii.h"

namespace fo::route {
namespace {

constexpr std::string_view kResponsesPrefix = "/v1/responses/";
constexpr std::string_view kModelsPrefix = "/v1/models/";
constexpr std::string_view kAudioPrefix = "/v1/audio/";

struct Entry {
  std::string_view path;
  std::string_view method;
  Api api;
};

constexpr std::array<Entry, 10> kPaths{{{"/v1/chat/completions", "POST", Api::kChat},
                                        {"/v1/completions", "POST", Api::kCompletions},
                                        {"/v1/responses", "POST", Api::kResponses},
                                        {"/v1/models", "GET", Api::kModels},
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

Api api_of_response(std::string_view method, std::string_view rest) {
  constexpr std::string_view kCancel = "/cancel";
  constexpr std::string_view kInput = "/input_items";
  std::string_view wanted_method = method == "DELETE" ? "DELETE" : "GET";
  if (rest.ends_with(kCancel)) {
    rest.remove_suffix(kCancel.size());
    wanted_method = "POST";
  } else if (rest.ends_with(kInput)) {
    rest.remove_suffix(kInput.size());
    wanted_method = "GET";
  }
  if (!is_plain_name(rest)) return Api::kNotFound;
  return method == wanted_method ? Api::kResponse : Api::kWrongMethod;
}

}  // namespace

Api find_api(std::string_view method, std::string_view path,
             const std::vector<std::string>& allowed) {
  if (is_ambiguous(path)) return Api::kNotFound;
  if (std::find(allowed.begin(), allowed.end(), path) != allowed.end()) return Api::kOther;
  for (const Entry& entry : kPaths) {
    if (entry.path == path) return entry.method == method ? entry.api : Api::kWrongMethod;
  }
  if (path.starts_with(kResponsesPrefix)) {
    return api_of_response(method, path.substr(kResponsesPrefix.size()));
  }
  if (path.starts_with(kModelsPrefix) && path.size() > kModelsPrefix.size()) {
    return method == "GET" ? Api::kModel : Api::kWrongMethod;
  }
  if (path.starts_with(kAudioPrefix) && is_plain_name(path.substr(kAudioPrefix.size()))) {
    return method == "POST" ? Api::kOther : Api::kWrongMethod;
  }
  return Api::kNotFound;
}

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
