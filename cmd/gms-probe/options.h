// gms-probe's options, and their conversion to probes.
#pragma once

#include <optional>
#include <string>

#include "cli/app.h"
#include "cli/endpoint_options.h"
#include "device/gpu_probe.h"
#include "engine/drivers/engine_probe.h"
#include "gms/client/probe.h"
#include "http/http_probe.h"
#include "lock/lock_probe.h"

namespace fo::gms_probe {

struct Options {
  enum class Probe { kSockets, kHttp, kEngine, kLock, kRemap, kGpu };
  cli::CommonOptions common;
  Probe probe = Probe::kSockets;
  gms::SocketsProbe sockets;
  http::HttpProbe http;
  engine::EngineProbe engine;
  /// The options as they were given: an engine is identified by its URL, or by lock and id.
  std::optional<std::string> engine_url;
  std::string engine_lock;
  std::optional<std::string> engine_id;
  lock::LockProbe lock;
  std::string lock_uri;
  std::string kube_api;
  gms::RemapProbe remap;
  cli::EndpointOptions endpoint;
  std::optional<std::string> expect_hash;
  device::GpuProbe gpu;
};

void declare(CLI::App& app, Options& options);

/// Completes the chosen probe with values of the environment and of several options. Throws Error:
/// kUsage for invalid values, kConfig for an invalid environment.
void settle(Options& options);

}  // namespace fo::gms_probe
