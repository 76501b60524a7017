// Options that several tools share, spelled the same everywhere, and option types that CLI11 does
// not know. Only included by options.cc files and tests: CLI11 is slow to compile.
#pragma once

#include <sys/types.h>

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/endpoint_options.h"

namespace fo::cli {

/// The duration that the text given to an option says. Throws CLI::ValidationError, which says what
/// would be one.
base::Duration read_duration(const std::string& name, const std::string& text);

/// A duration such as 500ms or 30s; the value it has now is shown as the default.
CLI::Option* add_duration(CLI::App& app, const std::string& name, base::Duration& value,
                          const std::string& description);
CLI::Option* add_duration(CLI::App& app, const std::string& name,
                          std::optional<base::Duration>& value, const std::string& description);

/// A size such as 4GiB; the value it has now is shown as the default.
CLI::Option* add_size(CLI::App& app, const std::string& name, base::ByteCount& value,
                      const std::string& description);
CLI::Option* add_size(CLI::App& app, const std::string& name, std::optional<base::ByteCount>& value,
                      const std::string& description);

/// The time for a reader's lock, default $GMS_REMAP_TIMEOUT_MS, a number of milliseconds; else the
/// value it has now. --help says which unit the variable has.
CLI::Option* add_remap_timeout(CLI::App& app, const std::string& name, base::Duration& value,
                               const std::string& description);

/// Accepts everything. Words that are among what an option takes, for completion; where there are
/// no others, CLI::IsMember says so.
CLI::Validator example_words(const std::vector<std::string>& words);

/// What `--device` says beside `--socket`: nothing, it is refused; or where the memory of the
/// socket is to be mapped.
enum class DeviceOfSocket { kRefused, kWhereToMap };

/// `--socket`, or `--socket-dir`, `--device` and `--tag`; and `--server-uid`.
void add_endpoint(CLI::App& app, EndpointOptions& endpoint,
                  DeviceOfSocket device_of_socket = DeviceOfSocket::kRefused);

/// `--socket-dir DIR`, default $GMS_SOCKET_DIR; where it stays empty, the default of
/// gms::socket_dir_or_default is meant.
CLI::Option* add_socket_dir(CLI::App& app, std::string& socket_dir);

/// `--server-uid UID`, default $GMS_SERVER_UID: whose servers are accepted besides root's and our
/// own user's.
CLI::Option* add_server_uid(CLI::App& app, std::optional<uid_t>& server_uid);

/// `--lock URI`, default $FAILOVER_LOCK_PATH, else the value it has now.
CLI::Option* add_lock(CLI::App& app, std::string& uri);
/// The same for locks to hold; it may be given several times, and has one value.
CLI::Option* add_locks(CLI::App& app, std::vector<std::string>& uris);
/// `--kube-api URL`, for those that say k8s: without an API server.
CLI::Option* add_kube_api(CLI::App& app, std::string& url);

/// `--status-fd N`: a descriptor for events as JSON lines.
CLI::Option* add_status_fd(CLI::App& app, int& fd);
/// `--ready-fd N`: a descriptor that gets a newline once `when`.
CLI::Option* add_ready_fd(CLI::App& app, int& fd, const std::string& when);

/// `--driver`, default $GMS_DRIVER.
CLI::Option* add_driver(CLI::App& app, std::string& driver);

/// A comma-separated list of device ordinals or "all" (an empty list), default "all".
CLI::Option* add_devices(CLI::App& app, std::vector<int>& devices, const std::string& description);
/// A comma-separated list of tags.
CLI::Option* add_tags(CLI::App& app, std::vector<std::string>& tags,
                      const std::string& description);

}  // namespace fo::cli
