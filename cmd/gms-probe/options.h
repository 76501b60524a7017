// gms-probe's options, and the probes that they amount to.
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
  /// As they were given: an engine is named by its URL, or by lock and id.
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

/// Fills in what the probe that was chosen takes from the environment and from several options.
/// Throws Error: kUsage for names that are none, kConfig for a bad environment.
void settle(Options& options);

}  // namespace fo::gms_probe
