#include "route/request/api_error.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "http/sse.h"
#include "json/object.h"

namespace fo::route {
namespace {

using fo::json::or_null;
using nlohmann::json;

const char* type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 429) return "rate_limit_error";
  return status >= 400 && status < 500 ? "invalid_request_error" : "server_error";
}

json to_json(const ApiError& error) {
  json object{{"message", error.message},
              {"type", type_of(error.status)},
              {"param", or_null(!error.param.empty(), error.param)},
              {"code", or_null(!error.code.empty(), error.code)}};
  if (error.delivered_tokens) object["delivered_tokens"] = *error.delivered_tokens;
  return {{"error", std::move(object)}};
}

}  // namespace

ApiError deadline_passed() {
  return {.status = 504, .message = "the request's deadline has passed", .code = "timeout"};
}

http::Response to_response(const ApiError& error) {
  http::Response response{error.status, "application/json", fo::json::dump(to_json(error)), {}};
  if (error.retry_after) http::add_retry_after(response, *error.retry_after);
  if (!error.allow.empty()) response.headers.emplace_back("allow", error.allow);
  if (!error.should_retry) response.headers.emplace_back("x-should-retry", "false");
  return response;
}

std::string to_event(const ApiError& error) {
  return http::format_sse(fo::json::dump(to_json(error)));
}

}  // namespace fo::route
