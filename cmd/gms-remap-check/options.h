// gms-remap-check's options, and their conversion to checks.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/app.h"
#include "cli/endpoint_options.h"
#include "gms/client/remap_check.h"

namespace fo::gms_remap_check {

struct Options {
  cli::CommonOptions common;
  cli::EndpointOptions endpoint;
  /// True if --devices was given: each of `devices` is checked, or all devices if it is empty.
  bool many = false;
  std::vector<base::DeviceOrdinal> devices;
  base::Duration timeout = std::chrono::seconds(30);
  std::vector<std::string> expect_hashes;
  std::string hash_file;
  std::string save_hash;
  bool map = false;
  std::string driver;
  bool exec = false;
  /// -1: none.
  int status_fd = -1;
};

void declare(CLI::App& app, Options& options);

/// One request for each socket, in order, with the expected hashes. Throws Error: kUsage for
/// conflicting options, kUnavailable if --devices all finds no socket, and what gms::read_hash_file
/// throws.
std::vector<gms::RemapCheckRequest> to_requests(const Options& options);

}  // namespace fo::gms_remap_check
