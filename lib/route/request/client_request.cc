#include "route/request/client_request.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "fleet/card/digest.h"
#include "json/object.h"
#include "json/scanner.h"
#include "route/request/api_paths.h"
#include "route/request/form.h"
#include "text/ascii.h"

namespace fo::route {
namespace {

using nlohmann::json;

// Beyond any context; keeps sums far from an overflow.
constexpr std::uint64_t kMaxTokens = 1'000'000'000;
constexpr std::size_t kMaxClientId = 64;
constexpr std::size_t kMaxModelBytes = 256;
constexpr std::size_t kMaxParamBytes = 64;

// Internal fields of vLLM and SGLang, with which a client could read or change the state of other
// clients' requests.
constexpr std::array<std::string_view, 11> kInnerFields{"priority",
                                                        "kv_transfer_params",
                                                        "ec_transfer_params",
                                                        "rid",
                                                        "request_id",
                                                        "session_params",
                                                        "custom_params",
                                                        "lora_path",
                                                        "custom_logit_processor",
                                                        "return_hidden_states",
                                                        "data_parallel_rank"};

// The paths at which vLLM reads "cache_salt" and "priority".
constexpr std::array<std::string_view, 6> kPathsWithAdditions{
    "/v1/chat/completions", "/v1/completions", "/v1/responses",
    "/v1/embeddings",       "/v1/rerank",      "/v1/score"};

bool is_inner_field(std::string_view name) {
  return text::is_one_of(name, kInnerFields) || name.starts_with("bootstrap_") ||
         name.ends_with("dp_rank");
}

// Thrown to refuse the request with 400.
struct Refusal {
  ApiError error;
};

[[noreturn]] void refuse(std::string message, std::string param = {}, std::string code = {}) {
  throw Refusal{{.status = 400,
                 .message = std::move(message),
                 .code = std::move(code),
                 .param = std::move(param)}};
}

std::string text_field(const json& body, const char* name) {
  const json* value = fo::json::find(body, name);
  if (value == nullptr) return {};
  if (!value->is_string()) refuse(std::string(name) + ": expected a string", name);
  return value->get<std::string>();
}

bool flag_field(const json& body, const char* name) {
  const json* value = fo::json::find(body, name);
  if (value == nullptr) return false;
  if (!value->is_boolean()) refuse(std::string(name) + ": expected true or false", name);
  return value->get<bool>();
}

std::optional<std::uint64_t> count_field(const json& body, const char* name) {
  const json* value = fo::json::find(body, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_unsigned()) {
    refuse(std::string(name) + ": expected a non-negative integer", name);
  }
  return std::min(value->get<std::uint64_t>(), kMaxTokens);
}

// The prompt of any API: the texts, token ids and other parts in the members that can contain them.
class Prompt {
 public:
  Prompt(ClientRequest& request, const RequestRules& rules) : request_(request), rules_(rules) {}
  ~Prompt() {
    request_.prompt_tokens += (bytes_ + rules_.bytes_per_token - 1) / rules_.bytes_per_token;
  }
  Prompt(const Prompt&) = delete;
  Prompt& operator=(const Prompt&) = delete;

  /// To be called before add().
  void add_salt(const std::string& salt) { add_prefix(salt); }

  void add(const json& value) {
    if (value.is_string()) {
      add_text(value.get_ref<const std::string&>());
    } else if (value.is_array()) {
      for (const json& part : value) add(part);
    } else if (value.is_object()) {
      add_object(value);
    } else if (value.is_number()) {
      ++request_.prompt_tokens;
      if (request_.prefix.size() < kPrefixBytes) add_prefix(value.dump() + " ");
    }
  }

 private:
  void add_text(const std::string& text) {
    bytes_ += text.size();
    add_prefix(text);
  }

  void add_prefix(std::string_view text) {
    std::string& prefix = request_.prefix;
    prefix.append(text.substr(0, kPrefixBytes - prefix.size()));
  }

  // A message, or a part of one.
  void add_object(const json& object) {
    bool is_text = false;
    if (const json* role = fo::json::find(object, "role")) add(*role);
    for (const char* name : {"text", "content"}) {
      if (const json* value = fo::json::find(object, name)) {
        add(*value);
        is_text = true;
      }
    }
    for (const char* name : {"tool_calls", "function", "arguments", "input", "output"}) {
      if (const json* value = fo::json::find(object, name)) {
        add_text(value->is_string() ? value->get<std::string>() : value->dump());
        is_text = true;
      }
    }
    const json* type = fo::json::find(object, "type");
    if (!is_text && type != nullptr && type->is_string()) {
      request_.prompt_tokens += rules_.tokens_per_part;
    }
  }

  ClientRequest& request_;
  const RequestRules& rules_;
  std::uint64_t bytes_ = 0;
};

// The number of prompts in a "prompt" of /v1/completions.
std::uint64_t count_prompts(const json& body) {
  const json* prompt = fo::json::find(body, "prompt");
  const bool is_list = prompt != nullptr && prompt->is_array() && !prompt->empty();
  return is_list && !prompt->front().is_number() ? prompt->size() : 1;
}

void check_model(const std::string& name) {
  if (name.size() > kMaxModelBytes) refuse("model: the name is too long", "model");
}

void refuse_inner_fields(const json& object, const std::vector<std::string>& allowed) {
  if (!object.is_object()) return;
  for (const auto& [name, value] : object.items()) {
    if (!is_inner_field(name)) continue;
    if (std::find(allowed.begin(), allowed.end(), name) != allowed.end()) continue;
    refuse("field " + base::quoted(name) + ": not allowed by this router",
           name.substr(0, kMaxParamBytes), "field_refused");
  }
}

// Members that are added to the body.
class Additions {
 public:
  explicit Additions(json& body) : body_(body) {}

  /// Adds a member, unless the client has given it.
  void add(const char* name, json value) {
    if (fo::json::find(body_, name) != nullptr) return;
    changes_.push_back({name, value.dump()});
    body_[name] = std::move(value);
  }
  void apply(ClientRequest& request) const {
    if (changes_.empty()) return;
    request.own_body =
        std::make_shared<const std::string>(fo::json::change_members(request.body, changes_));
    request.body = *request.own_body;
  }

 private:
  json& body_;
  std::vector<fo::json::MemberChange> changes_;
};

// The salt is secret, because it derives from the key. The prefix makes it differ from the key's
// plain SHA-256, which is in the keys file.
std::string salt_of(const std::string& key) { return fleet::sha256_hex("cache_salt:" + key); }

void add_members(const http::Request& from, const RequestRules& rules, std::size_t tier,
                 ClientRequest& request, json& body) {
  if (!text::is_one_of(from.path, kPathsWithAdditions)) return;
  Additions additions(body);
  if (const auto key = find_key(from); key && rules.salt_by_key) {
    additions.add("cache_salt", salt_of(*key));
  }
  if (rules.priority_by_tier) additions.add("priority", tier);
  additions.apply(request);
}

void read_body(const http::Request& from, const RequestRules& rules, std::size_t tier,
               ClientRequest& request) {
  // RFC 8259 lets a parser ignore the mark, but json::change_members(), which edits the text of the
  // body for a worker, refuses it.
  if (request.body.starts_with("\xef\xbb\xbf")) refuse("the body begins with a byte order mark");
  json body;
  try {
    body = fo::json::parse_object(request.body, request.body.size());
  } catch (const fo::json::Misfit& misfit) {
    refuse("the body: " + std::string(misfit.what()));
  }
  refuse_inner_fields(body, rules.allowed_fields);
  // vLLM passes the members of vllm_xargs to its connectors, together with kv_transfer_params.
  if (const json* more = fo::json::find(body, "vllm_xargs")) {
    refuse_inner_fields(*more, rules.allowed_fields);
  }
  add_members(from, rules, tier, request, body);
  request.model = text_field(body, "model");
  check_model(request.model);
  request.is_streamed = flag_field(body, "stream");
  request.previous_response = text_field(body, "previous_response_id");
  Prompt prompt(request, rules);
  const json* const salt = fo::json::find(body, "cache_salt");
  if (salt != nullptr && salt->is_string()) prompt.add_salt(salt->get_ref<const std::string&>());
  for (const char* name : {"system", "instructions", "tools", "messages", "prompt", "input",
                           "query", "documents", "text_1", "text_2"}) {
    if (const json* value = fo::json::find(body, name)) prompt.add(*value);
  }
  for (const char* name : {"max_completion_tokens", "max_tokens", "max_output_tokens"}) {
    if (!request.max_tokens) request.max_tokens = count_field(body, name);
  }
  const std::uint64_t n = std::max<std::uint64_t>(count_field(body, "n").value_or(1), 1);
  // An engine may ignore a "prompt" beside the messages of a chat.
  const std::uint64_t prompts = request.api == Api::kCompletions ? count_prompts(body) : 1;
  request.choices = std::min(n * prompts, kMaxTokens);
  if (request.max_tokens) {
    request.max_tokens = std::min(*request.max_tokens * request.choices, kMaxTokens);
  }
  if (request.api == Api::kChat || request.api == Api::kCompletions) {
    request.resume = read_resume_facts(body, request.api, rules.resume);
    std::string& text_refusal = request.resume->text_refusal;
    if (text_refusal.empty() && request.body.size() > kMaxShortBytes) {
      text_refusal = "the worker does not report token ids, and the request is longer than 64 KiB";
    }
    if (!request.is_streamed) {
      // The whole answer has the usage. An engine refuses stream_options without a stream.
      request.resume->wants_usage = true;
      request.resume->wants_continuous_usage = false;
      if (fo::json::find(body, "stream_options") != nullptr) {
        request.resume->refusal = "'stream_options' without a stream";
      }
    }
  }
}

// A multipart form, such as audio, of which the model is read.
void read_form_body(std::string_view type, const RequestRules& rules, ClientRequest& request) {
  std::vector<FormField> fields;
  try {
    fields = read_form(type, request.body);
  } catch (const base::Error& error) {
    refuse(error.what());
  }
  json names = json::object();
  bool has_model = false;
  for (const FormField& field : fields) {
    names[field.name] = true;
    if (field.name == "vllm_xargs") {
      const auto more = fo::json::find_object(field.value, field.value.size());
      if (!more) refuse("vllm_xargs: expected an object", "vllm_xargs");
      refuse_inner_fields(*more, rules.allowed_fields);
    }
    if (field.name != "model") continue;
    if (std::exchange(has_model, true)) refuse("model: appears twice", "model");
    request.model = field.value;
    check_model(request.model);
  }
  refuse_inner_fields(names, rules.allowed_fields);
  request.prompt_tokens = rules.tokens_per_part;
}

void copy_headers(const http::Request& from, const RequestRules& rules, ClientRequest& request) {
  for (const char* name : {"traceparent", "tracestate", "baggage"}) {
    if (const auto value = from.header(name)) request.headers.emplace_back(name, *value);
  }
  if (rules.pass_authorization) {
    if (const auto value = from.header("authorization")) {
      request.headers.emplace_back(kAuthorization, *value);
    }
  }
  request.headers.emplace_back("accept-encoding", "identity");
}

bool is_client_id(std::string_view id) { return id.size() <= kMaxClientId && is_plain_name(id); }

// A duration such as 30s, or a number of seconds.
base::Duration read_timeout(std::string_view value) {
  std::string text(value);
  if (!text.empty() && text::is_digit(text.back())) text += "s";
  const std::optional<base::Duration> time = base::parse_duration(text);
  if (!time) refuse("x-request-timeout: expected a number of seconds, or a duration such as 500ms");
  return *time;
}

}  // namespace

std::optional<std::string> find_key(const http::Request& request) {
  constexpr std::string_view kScheme = "bearer ";
  if (const auto value = request.header("authorization")) {
    const bool is_bearer = base::equal_ignoring_case(value->substr(0, kScheme.size()), kScheme);
    return std::string(is_bearer ? value->substr(kScheme.size()) : std::string_view());
  }
  if (const auto value = request.header("x-api-key")) return std::string(*value);
  return std::nullopt;
}

std::string find_client_id(const http::Request& request) {
  const std::string_view id = request.header("x-request-id").value_or("");
  return is_client_id(id) ? std::string(id) : std::string();
}

ReadRequest read_request(const http::Request& from, Api api, const RequestRules& rules,
                         std::size_t tier) {
  ClientRequest request;
  request.api = api;
  request.method = from.method;
  const std::size_t query = from.target.find('?');
  request.target = from.path + (query == from.target.npos ? "" : from.target.substr(query));
  request.body = from.body;
  copy_headers(from, rules, request);
  request.client_id = find_client_id(from);
  const std::string_view type = from.header("content-type").value_or("");
  try {
    if (const auto value = from.header("x-request-timeout")) request.timeout = read_timeout(*value);
    // Clients may name another type, as curl does by default, which engines refuse.
    std::string sent_type = "application/json";
    if (api == Api::kOther && text::lower(type).starts_with("multipart/")) {
      sent_type = type;
      read_form_body(type, rules, request);
    } else if (from.method == "POST" && api != Api::kResponse) {
      read_body(from, rules, tier, request);
    } else {
      sent_type = type;
    }
    if (!sent_type.empty()) {
      request.headers.emplace(request.headers.begin(), "content-type", std::move(sent_type));
    }
  } catch (const Refusal& refusal) {
    return {.request = std::nullopt, .refusal = refusal.error};
  }
  return {.request = std::move(request)};
}

}  // namespace fo::route
