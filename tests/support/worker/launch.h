// The configuration of the stand-in: the real program's command line and environment, parsed as
// that program does.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/units.h"
#include "gms/protocol/types.h"

namespace fo::stand_in {

enum class Program {
  kVllm,        // vllm serve, or python3 -m vllm.entrypoints.openai.api_server
  kSglang,      // sglang serve, or python3 -m sglang.launch_server
  kDynamoVllm,  // python3 -m dynamo.vllm
};

struct Launch {
  Program program = Program::kVllm;
  std::string model;
  std::string host = "0.0.0.0";
  std::string port;
  /// ENGINE_ID from the environment; empty if it is unset.
  std::string engine_id;

  /// The lock for the weights at start. At a wake the engine is a reader.
  gms::LockType weights_lock = gms::LockType::kRwOrRo;
  /// Timeout of the reader's lock for the weights; nullopt: no limit.
  std::optional<base::Duration> reader_timeout;
  /// The KV cache starts as scratch memory without a session (DYN_GMS_SCRATCH_KV_ENABLED).
  bool scratch_kv = false;
  /// The KV cache is in the GMS: --enable-sleep-mode, or SGLang.
  bool kv_in_gms = false;
  /// nullopt: this share of the device, minus the weights.
  std::optional<base::ByteCount> kv_bytes;
  double memory_fraction = 0.9;

  /// The server has HTTP routes for sleep and wake.
  bool has_sleep_routes = false;
  /// Dynamo's shadow mode: the engine sleeps until it has acquired the lock itself.
  bool shadow_mode = false;
  std::string lock_path;
  /// Further ports to listen on: NIXL's side channel and the events of the KV cache, if connector
  /// and publisher are configured.
  std::vector<std::string> side_ports;
  /// The port of Dynamo's system status server; nullopt if it has none.
  std::optional<std::string> system_port;
};

/// The status and message with which the real program would end at once.
class Refused : public std::runtime_error {
 public:
  Refused(int status, const std::string& what) : std::runtime_error(what), status_(status) {}
  [[nodiscard]] int status() const { return status_; }

 private:
  int status_;
};

/// Parses "vllm serve …", "sglang serve …" or "python3 -m MODULE …"; nullopt for any other program.
/// Throws Refused.
std::optional<Launch> parse_launch(const std::vector<std::string>& words);

}  // namespace fo::stand_in
