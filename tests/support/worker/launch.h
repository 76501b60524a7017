// What the stand-in for an engine was started as: the real program's command line and environment,
// read as that program reads them.
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
  /// ENGINE_ID as it stands in the environment; empty where it is unset.
  std::string engine_id;

  /// Of the weights, when the engine starts. When it wakes, it is a reader.
  gms::LockType weights_lock = gms::LockType::kRwOrRo;
  /// For the reader's lock of the weights; nullopt: no limit.
  std::optional<base::Duration> reader_timeout;
  /// The KV cache begins as scratch memory, without a session (DYN_GMS_SCRATCH_KV_ENABLED).
  bool scratch_kv = false;
  /// The KV cache is in the GMS: --enable-sleep-mode, or SGLang.
  bool kv_in_gms = false;
  /// nullopt: this part of the device, less the weights.
  std::optional<base::ByteCount> kv_bytes;
  double memory_fraction = 0.9;

  /// The routes that put it to sleep exist.
  bool has_sleep_routes = false;
  /// Dynamo's shadow mode: it sleeps until it has the lock, which it takes by itself.
  bool shadow_mode = false;
  std::string lock_path;
  /// Those at which it listens beside its API: NIXL's side channel and the events of its KV cache,
  /// where connector and publisher are configured.
  std::vector<std::string> side_ports;
  /// Dynamo's system status server; nullopt: none.
  std::optional<std::string> system_port;
};

/// The real program would end at once with this status and message.
class Refused : public std::runtime_error {
 public:
  Refused(int status, const std::string& what) : std::runtime_error(what), status_(status) {}
  [[nodiscard]] int status() const { return status_; }

 private:
  int status_;
};

/// Of "vllm serve …", "sglang serve …" or "python3 -m MODULE …"; nullopt: none of the programs that
/// are known here. Throws Refused.
std::optional<Launch> parse_launch(const std::vector<std::string>& words);

}  // namespace fo::stand_in
