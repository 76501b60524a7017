// HTTP requests and responses as plain data, free of the library that reads them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fo::http {

using Fields = std::vector<std::pair<std::string, std::string>>;

/// Whether it can be a method or the name of a field.
bool is_token(std::string_view text);

/// Whether a head can have such a field: the name is a token, and the value has no control
/// characters but tabs.
bool is_valid_field(std::string_view name, std::string_view value);

/// The first field of that name, in any case.
std::optional<std::string_view> find_field(const Fields& fields, std::string_view name);

struct Request {
  std::string method;
  /// As in the request line.
  std::string target;
  /// Percent-decoded, without the query.
  std::string path;
  /// Decoded ("+" is a blank), in order, repeated keys kept.
  Fields query;
  Fields headers;
  std::string body;

  [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const {
    return find_field(headers, name);
  }
  /// The first parameter of that name.
  [[nodiscard]] std::optional<std::string_view> parameter(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  /// Beside Content-Type, Content-Length and Connection, which the server writes itself. Fields
  /// that are not valid are left out.
  Fields headers;

  [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const {
    return find_field(headers, name);
  }
};

/// What an answer begins with.
struct ResponseHead {
  int status = 0;
  Fields headers;

  [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const {
    return find_field(headers, name);
  }
};

/// "Not Found"; "Status" for a status without a name.
std::string_view reason_phrase(int status);

/// {"error":{"code":status,"message":message,"type":…}}, as OpenAI's API spells failures; the type
/// is "invalid_request_error" for 4xx and "server_error" for the rest.
Response error_response(int status, std::string_view message);

/// Splits and decodes a request target (origin or absolute form) into path and query.
/// False when its percent-encoding is broken or it has no path.
bool split_target(std::string_view target, std::string& path, Fields& query);

}  // namespace fo::http
