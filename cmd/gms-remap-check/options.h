// gms-remap-check's options, and the checks that they amount to.
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
  /// --devices was given: one check for each; empty means all.
  bool many = false;
  std::vector<int> devices;
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

/// One request for each socket, in order, with the hashes to expect. Throws Error: kUsage for
/// options that don't go together, kUnavailable when --devices all finds no socket, and those of
/// gms::read_hash_file.
std::vector<gms::RemapCheckRequest> to_requests(const Options& options);

}  // namespace fo::gms_remap_check
