#include "engine/publish/control_paths.h"

#include <algorithm>
#include <vector>

#include "base/hex.h"
#include "base/text.h"

namespace fo::engine {
namespace {

using base::hex_value;

// Each entry matches itself and the paths below it; with a '*' at its end, every path with that
// prefix. fo-shadow(1) has the same lists.

// vllm/entrypoints in vLLM 0.8 to 0.20, including the development mode; /adapters is SageMaker's.
constexpr auto kVllmPaths = std::to_array<std::string_view>({
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/pause",
    "/resume",
    "/is_paused",
    "/abort_requests",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/reset_encoder_cache",
    "/collective_rpc",
    "/reconfigure",
    "/scale_elastic_ep",
    "/is_scaling_elastic_ep",
    "/fault_tolerance",
    "/init_weight_transfer_engine",
    "/start_weight_update",
    "/start_draft_weight_update",
    "/update_weight*",
    "/finish_weight_update",
    "/weight_info",
    "/weight_checker",
    "/get_world_size",
    "/server_info",
    "/start_profile",
    "/stop_profile",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/adapters",
});

// sglang/srt/entrypoints/http_server.py: the paths for which SGLang has an administrator's key, and
// others that change settings.
constexpr auto kSglangPaths = std::to_array<std::string_view>({
    "/release_memory_occupation",
    "/resume_memory_occupation",
    "/pause_generation",
    "/continue_generation",
    "/abort_request",
    "/slow_down",
    "/flush_cache",
    "/clear_hicache_storage_backend",
    "/hicache",
    "/set_internal_state",
    "/configure_logging",
    "/set_trace_level",
    "/freeze_gc",
    "/dumper",
    "/start_profile",
    "/stop_profile",
    "/start_expert_distribution_record",
    "/stop_expert_distribution_record",
    "/dump_expert_distribution_record",
    "/update_weight*",
    "/init_weights_*",
    "/destroy_weights_update_group",
    "/send_weights_to_remote_instance",
    "/post_process_weights",
    "/weights_checker",
    "/get_weights_by_name",
    "/get_remote_instance_transfer_engine_info",
    "/remote_instance_transfer_engine_info",
    "/load_lora_adapter*",
    "/unload_lora_adapter",
    "/add_external_corpus",
    "/remove_external_corpus",
    "/list_external_corpora",
});

// The system status server of a worker of NVIDIA Dynamo, and its frontend.
constexpr auto kDynamoPaths = std::to_array<std::string_view>({
    "/engine",
    "/v1/loras",
    "/clear_kv_blocks",
    "/busy_threshold",
});

// Decodes until no escape is left, because an engine behind another server may decode twice.
// Invalid escapes stay unchanged.
std::string without_escapes(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c;
    for (;;) {
      const std::size_t at = out.size() < 3 ? 0 : out.size() - 3;
      if (out.size() < 3 || out[at] != '%') break;
      const int high = hex_value(out[at + 1]);
      const int low = hex_value(out[at + 2]);
      if (high < 0 || low < 0) break;
      out.resize(at);
      out += static_cast<char>(high * 16 + low);
    }
  }
  return out;
}

// The end of the authority in an absolute form; nullopt for another form.
std::optional<std::size_t> authority_end(std::string_view target) {
  constexpr std::string_view kBeforeAuthority = "://";
  const std::size_t scheme = target.find(kBeforeAuthority);
  if (scheme == 0 || scheme == std::string_view::npos || scheme > target.find('/')) {
    return std::nullopt;
  }
  return std::min(target.find_first_of("/?", scheme + kBeforeAuthority.size()), target.size());
}

bool is_at(std::string_view path, std::string_view pattern) {
  if (pattern.ends_with('*')) return path.starts_with(pattern.substr(0, pattern.size() - 1));
  return path.starts_with(pattern) &&
         (path.size() == pattern.size() || path[pattern.size()] == '/');
}

template <typename Patterns>
bool has_path(const Patterns& patterns, std::string_view path) {
  const auto is_any = [&](std::string_view rest) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](std::string_view pattern) { return is_at(rest, pattern); });
  };
  if (is_any(path)) return true;
  if (path.starts_with("/v1/")) return false;
  for (std::size_t at = path.find('/', 1); at != std::string_view::npos;
       at = path.find('/', at + 1)) {
    if (is_any(path.substr(at))) return true;
  }
  return false;
}

}  // namespace

std::optional<std::string> plain_path(std::string_view target) {
  if (target == "*") return "*";
  if (!base::is_graphic(target)) return std::nullopt;
  if (!target.starts_with('/')) {
    const std::optional<std::size_t> path = authority_end(target);
    if (!path) return std::nullopt;
    target.remove_prefix(*path);
  }
  const std::string text = without_escapes(target.substr(0, target.find_first_of("?#")));
  if (std::any_of(text.begin(), text.end(), base::is_control)) return std::nullopt;
  std::vector<std::string_view> segments;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view segment = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (segment == "..") {
      if (!segments.empty()) segments.pop_back();
    } else if (!segment.empty() && segment != ".") {
      segments.push_back(segment);
    }
  }
  std::string path;
  for (const std::string_view segment : segments) {
    path += '/';
    std::transform(segment.begin(), segment.end(), std::back_inserter(path), base::lower);
  }
  return path.empty() ? "/" : path;
}

bool is_control_path(EngineKind kind, std::string_view plain_path) {
  const bool is_vllm = kind == EngineKind::kVllm;
  const bool is_sglang = kind == EngineKind::kSglang;
  // For other kinds, the server behind the address is unknown.
  return (!is_sglang && has_path(kVllmPaths, plain_path)) ||
         (!is_vllm && has_path(kSglangPaths, plain_path)) ||
         (!is_vllm && !is_sglang && has_path(kDynamoPaths, plain_path));
}

}  // namespace fo::engine
