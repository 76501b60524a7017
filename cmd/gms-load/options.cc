#include "options.h"

#include <CLI/CLI.hpp>

#include "cli/options.h"

namespace fo::gms_load {

void declare(CLI::App& app, Options& options) {
  weights::LoadOptions& load = options.load;
  app.add_option("MODEL", load.model, "a .safetensors file, or a Hugging Face folder")
      ->required()
      ->type_name("");
  app.add_option("--role", options.role, "rw, ro or rw_or_ro (default: by $ENGINE_ID)")
      ->check(CLI::IsMember({"rw", "ro", "rw_or_ro"}).description(""))
      ->type_name("ROLE");
  cli::add_endpoint(app, options.endpoint);
  CLI::Option* socket = app.get_option("--socket");
  CLI::Option* device = app.get_option("--device");
  // It says where the memory of a socket is to be mapped.
  socket->remove_excludes(device);
  device->remove_excludes(socket);
  cli::add_duration(app, "--timeout", load.timeout, "for the lock (default: wait for ever)");
  cli::add_size(app, "--slab", load.slab, "allocate this much at a time");
  app.add_option("--copy-threads", load.copy_threads, "default: one per CPU, at most 8")
      ->check(CLI::Range(1, 256).description(""))
      ->type_name("N");
  cli::add_size(app, "--ring", load.ring, "pinned staging memory (default: 64MiB, simulated: 0)");
  app.add_flag("--verify", load.verify, "read device memory back and compare it with the files");
  app.add_flag("--pin-content", load.pin_content, "put each tensor's SHA-256 into the layout");
  cli::add_driver(app, options.driver);
}

gms::LockType role(const Options& options) {
  return options.role.empty() ? weights::role_from_env() : *gms::parse_lock_type(options.role);
}

}  // namespace fo::gms_load
