// HTTP requests and responses as plain data, independent of the HTTP library.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"

namespace fo::http {

using Fields = std::vector<std::pair<std::string, std::string>>;

/// Whether `text` is a valid method or field name.
bool is_token(std::string_view text);

/// Whether a line has a control character other than a tab. Parsers may disagree about its end.
bool has_control(std::string_view line);

/// Whether a head can contain this field: the name is a token, and the value has no control
/// characters except tabs.
bool is_valid_field(std::string_view name, std::string_view value);

/// The first field with this name, in any case; nullopt if there is none.
std::optional<std::string_view> find_field(const Fields& fields, std::string_view name);

struct Request {
  std::string method;
  /// The request target, as in the request line.
  std::string target;
  /// Percent-decoded, without the query.
  std::string path;
  /// The query parameters, decoded ("+" is a space), in order, with repeated keys.
  Fields query;
  Fields headers;
  std::string body;

  [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const {
    return find_field(headers, name);
  }
  /// The value of the first query parameter with this name.
  [[nodiscard]] std::optional<std::string_view> parameter(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  /// Sent in addition to Content-Type, Content-Length and Connection, which the server writes; but
  /// the answer to a HEAD request may have Content-Length here instead of a body. Invalid fields
  /// are left out.
  Fields headers;

  [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const {
    return find_field(headers, name);
  }
};

/// The status and headers of an answer.
struct ResponseHead {
  int status = 0;
  Fields headers;

  [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const {
    return find_field(headers, name);
  }
};

/// The reason phrase, such as "Not Found"; "Status" for an unknown status.
std::string_view reason_phrase(int status);

/// {"error":{"code":status,"message":message,"type":…}}, the format of OpenAI's API; the type is
/// "invalid_request_error" for 4xx and "server_error" for other statuses.
Response error_response(int status, std::string_view message);

/// Adds Retry-After: the client may try again after this time, which is rounded up to seconds.
void add_retry_after(Response& response, base::Duration time);

/// The message in the body of an error_response, or of another server's error: "error" or "message"
/// itself, or FastAPI's "detail"; as the peer wrote it, and empty if there is none.
std::string error_message_in(std::string_view body);

/// `text` as the name or value of a query parameter: bytes other than letters, digits and "-._~"
/// become %XX.
std::string encode_parameter(std::string_view text);

/// Splits a request target (origin or absolute form) into a decoded path and query. False if it has
/// a byte that is not graphic ASCII, if the percent-encoding is malformed or is that of a NUL, or
/// if the path is missing.
bool split_target(std::string_view target, std::string& path, Fields& query);

}  // namespace fo::http
