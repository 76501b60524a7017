#include "options.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/config/variables.h"
#include "cli/options.h"

namespace fo::gms_load {

void declare(CLI::App& app, Options& options) {
  weights::LoadOptions& load = options.load;
  CLI::Option* model =
      app.add_option("MODEL", load.model, "a .safetensors file, or a Hugging Face folder")
          ->type_name("FILE");
  CLI::Option* snapshot =
      app.add_option("--snapshot", load.snapshot, "publish this snapshot directory instead")
          ->type_name("DIR");
  using enum gms::LockType;
  CLI::Option* role = cli::add_choice(app, "--role", options.role,
                                      {{"rw", kRw}, {"ro", kRo}, {"rw_or_ro", kRwOrRo}},
                                      "rw, ro or rw_or_ro (default: by $ENGINE_ID)", "ROLE");
  cli::add_endpoint(app, options.endpoint, cli::DeviceOfSocket::kWhereToMap);
  cli::add_duration(app, "--timeout", load.timeout, "for the lock (default: no limit)");
  CLI::Option* slab = cli::add_size(app, "--slab", load.slab, "allocate this much at a time");
  cli::add_copy_options(app, load.copy_threads, load.ring);
  CLI::Option* verify = app.add_flag("--verify", load.verify,
                                     "read device memory back and compare it with the files");
  CLI::Option* no_verify =
      app.add_flag("--no-verify", options.no_verify, "don't check the snapshot's SHA-256");
  CLI::Option* replace_first =
      app.add_flag("--replace-first", load.replace_first,
                   "drop the old layout before the snapshot's SHA-256 is checked");
  CLI::Option* pin_content =
      app.add_flag("--pin-content", load.pin_content, "put each tensor's SHA-256 into the layout");
  CLI::Option* unpublish =
      app.add_flag("--unpublish", options.unpublish, "drop the published layout, and load nothing");
  cli::add_driver(app, options.driver);
  cli::add_variables(app, {"CUDA_VISIBLE_DEVICES", "ENGINE_ID", "GMS_SIM_*", "TMPDIR"});

  no_verify->needs(snapshot);
  replace_first->needs(snapshot)->excludes(no_verify);
  for (CLI::Option* other : {model, slab, pin_content}) snapshot->excludes(other);
  for (CLI::Option* other :
       {model, snapshot, role, slab, app.get_option("--copy-threads"), app.get_option("--ring"),
        verify, no_verify, replace_first, pin_content}) {
    unpublish->excludes(other);
  }
}

void check(const Options& options) {
  if (options.unpublish || !options.load.model.empty() || !options.load.snapshot.empty()) return;
  throw base::Error(base::ExitStatus::kUsage, "MODEL, --snapshot or --unpublish is required");
}

gms::LockType role(const Options& options) {
  return options.role ? *options.role : weights::role_from_env();
}

}  // namespace fo::gms_load
