#include "options.h"

#include <CLI/CLI.hpp>

#include "cli/config/variables.h"
#include "cli/options.h"

namespace fo::gms_save {

void declare(CLI::App& app, Options& options) {
  weights::SaveOptions& save = options.save;
  app.add_option("DIR", save.folder, "the snapshot to create")->required()->type_name("DIR");
  app.add_flag("--replace", options.replace, "replace an existing snapshot");
  cli::add_endpoint(app, options.endpoint, cli::DeviceOfSocket::kWhereToMap);
  cli::add_duration(app, "--timeout", save.timeout, "for the lock (default: no limit)");
  cli::add_copy_options(app, save.copy_threads, save.ring);
  cli::add_driver(app, options.driver);
  cli::add_variables(app, {"CUDA_VISIBLE_DEVICES", "GMS_SIM_*", "TMPDIR"});
}

}  // namespace fo::gms_save
