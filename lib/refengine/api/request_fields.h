// Reads the members of the API's requests. Pure. Each function throws ApiError 400, with the
// member's name, for a value that it does not expect; a member that is null is missing.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strong.h"
#include "refengine/model/model_config.h"

namespace fo::refengine {

/// An invalid or unsupported request, with the HTTP status and the name of the parameter (may be
/// empty).
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& what, std::string parameter = {})
      : std::runtime_error(what), status_(status), parameter_(std::move(parameter)) {}
  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] const std::string& parameter() const { return parameter_; }

 private:
  int status_;
  std::string parameter_;
};

/// Maximum size of a body: enough for some hundred thousand token ids.
inline constexpr base::ByteCount kMaxBodyBytes = 2 * base::kMiB;
/// A count without a limit.
inline constexpr std::uint64_t kAnyCount = std::numeric_limits<std::uint64_t>::max();

/// The object in a body.
nlohmann::json parse_body(std::string_view text);

/// Throws ApiError 404 for the name of another model.
void check_model(const nlohmann::json& body, const std::string& model_name);

/// Throws ApiError 400: "`parameter` `reason`".
[[noreturn]] void refuse(const std::string& parameter, const std::string& reason);

bool read_flag(const nlohmann::json& object, const char* key, bool missing = false);
/// A whole number from `min` to `max`.
std::optional<std::uint64_t> read_count(const nlohmann::json& object, const char* key,
                                        std::uint64_t min, std::uint64_t max);
/// Ids of the model's tokens; `list` is the member `parameter`.
std::vector<TokenId> read_tokens(const nlohmann::json& list, const char* parameter,
                                 const ModelConfig& config);
/// The tokens of `text`, which is a part of the member `parameter`. With `add_special`, the model's
/// bos is before them.
std::vector<TokenId> encode_member(std::string_view text, bool add_special, const char* parameter,
                                   const ModelConfig& config);

}  // namespace fo::refengine
