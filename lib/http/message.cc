#include "http/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/status.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/hex.h"
#include "base/text.h"
#include "json/object.h"
#include "text/ascii.h"

namespace fo::http {
namespace {

using base::hex_value;

constexpr base::ByteCount kMaxErrorBytes = base::kMiB;

std::optional<std::string> decode(std::string_view text, bool plus_is_blank) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_blank) {
      out += ' ';
    } else if (text[i] == '%') {
      const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
      if (high < 0 || low < 0 || high + low == 0) return std::nullopt;
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return text::is_letter_or_digit(c) || kMarks.find(c) != std::string_view::npos;
  });
}

bool has_control(std::string_view line) {
  return std::any_of(line.begin(), line.end(),
                     [](char c) { return base::is_control(c) && c != '\t'; });
}

bool is_valid_field(std::string_view name, std::string_view value) {
  return is_token(name) && !has_control(value);
}

std::optional<std::string_view> find_field(const Fields& fields, std::string_view name) {
  for (const auto& [key, value] : fields) {
    if (base::equal_ignoring_case(key, name)) return value;
  }
  return std::nullopt;
}

std::optional<std::string_view> Request::parameter(std::string_view name) const {
  for (const auto& [key, value] : query) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::string_view reason_phrase(int status) {
  const auto known = boost::beast::http::int_to_status(static_cast<unsigned>(status));
  if (known == boost::beast::http::status::unknown) return "Status";
  const auto reason = boost::beast::http::obsolete_reason(known);
  return {reason.data(), reason.size()};
}

void add_retry_after(Response& response, base::Duration time) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(time).count();
  response.headers.emplace_back("Retry-After", std::to_string(seconds));
}

Response error_response(int status, std::string_view message) {
  const nlohmann::json body = {
      {"error",
       {{"code", status},
        {"message", message},
        {"type", status >= 400 && status < 500 ? "invalid_request_error" : "server_error"}}}};
  Response response;
  response.status = status;
  response.body = fo::json::dump(body);
  return response;
}

std::string error_message_in(std::string_view body) {
  const nlohmann::json object =
      fo::json::find_object(body, kMaxErrorBytes).value_or(nlohmann::json::object());
  const auto member = [](const nlohmann::json* value, const char* name) {
    return value == nullptr ? nullptr : fo::json::find(*value, name);
  };
  const nlohmann::json* const error = member(&object, "error");
  const nlohmann::json* const detail = member(&object, "detail");
  const bool is_list = detail != nullptr && detail->is_array() && !detail->empty();
  for (const nlohmann::json* message :
       {member(error, "message"), error, member(&object, "message"),
        member(is_list ? &detail->front() : nullptr, "msg"), detail}) {
    if (message != nullptr && message->is_string() && *message != "") return *message;
  }
  return {};
}

std::string encode_parameter(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const bool is_plain =
        text::is_letter_or_digit(c) || c == '-' || c == '.' || c == '_' || c == '~';
    encoded += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

bool split_target(std::string_view target, std::string& path, Fields& query) {
  // RFC 3986 allows only graphic ASCII in a target, and Connection::send() refuses any other byte.
  if (!base::is_graphic(target)) return false;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!base::equal_ignoring_case(target.substr(0, scheme.size()), scheme)) continue;
    const std::size_t end = target.find_first_of("/?#", scheme.size());
    if (end == std::string_view::npos || end == scheme.size()) return false;
    target.remove_prefix(end);
    break;
  }
  if (!target.starts_with('/')) return false;
  const std::size_t mark = target.find('?');
  const std::optional<std::string> decoded = decode(target.substr(0, mark), false);
  if (!decoded) return false;
  path = *decoded;
  query.clear();
  if (mark == std::string_view::npos) return true;
  for (const std::string_view pair : text::split(target.substr(mark + 1), '&')) {
    if (pair.empty()) continue;
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const std::optional<std::string> key = decode(pair.substr(0, equals), true);
    const std::optional<std::string> value =
        decode(pair.substr(std::min(equals + 1, pair.size())), true);
    if (!key || !value) return false;
    query.emplace_back(*key, *value);
  }
  return true;
}

}  // namespace fo::http
