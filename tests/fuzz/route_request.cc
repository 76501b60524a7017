// A client's request for the router. What is read must be within its limits, and the refusal of
// another one a valid error. The first byte selects the API, and whether the body is a form.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "fuzz.h"
#include "json/object.h"
#include "route/request/client_request.h"

namespace fo::route {
namespace {

using fuzz::require;

constexpr std::uint64_t kTokensPerPart = 1500;

void check_refusal(const ApiError& refusal) {
  require(refusal.status == 400, "a refusal blames the request");
  require(!refusal.message.empty() && refusal.message.size() < 2000, "a refusal has a reason");
  const http::Response response = to_response(refusal);
  const auto object = json::find_object(response.body, response.body.size());
  require(object && object->at("error").at("message").is_string(), "the error is an object");
}

void check_request(const ClientRequest& request, const http::Request& from) {
  require(request.body.data() == from.body.data() && request.body.size() == from.body.size(),
          "the body is passed on");
  require(request.model.size() <= 256, "the name of a model is short");
  require(request.prefix.size() <= kPrefixBytes, "the beginning of a prompt is short");
  require(request.prompt_tokens <= (from.body.size() + 1) * kTokensPerPart,
          "a byte is not more than an image");
  require(request.choices > 0, "there is a choice");
  require(request.client_id.empty(), "without an id of the client there is none");
  const bool has_key = std::any_of(request.headers.begin(), request.headers.end(),
                                   [](const auto& field) { return field.second == "Bearer key"; });
  require(!has_key, "the key is not passed on");
  const auto object = json::find_object(from.body, from.body.size());
  for (const char* name : {"priority", "rid", "kv_transfer_params", "bootstrap_room", "dp_rank"}) {
    require(!object || !object->contains(name), "no field of an engine's insides passes");
  }
}

void fuzz_one(fuzz::Input input) {
  static constexpr Api kApis[]{Api::kChat, Api::kCompletions, Api::kResponses, Api::kOther};
  const std::uint8_t choice = input.byte();
  const Api api = kApis[choice % 4];
  const bool is_form = (choice & 4) != 0;
  http::Request from;
  from.method = "POST";
  from.target = from.path = "/v1/x";
  from.headers = {
      {"content-type", is_form ? "multipart/form-data; boundary=b" : "application/json"},
      {"authorization", "Bearer key"}};
  from.body = input.rest();
  const ReadRequest result = read_request(from, api, {});
  if (!result.request) return check_refusal(result.refusal);
  // For the other APIs, the type of the body does not matter.
  if (is_form && api == Api::kOther) {
    require(from.body.find(result.request->model) != from.body.npos, "the model is in the form");
  } else {
    check_request(*result.request, from);
  }
}

}  // namespace
}  // namespace fo::route

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fo::route::fuzz_one({data, size});
  return 0;
}
