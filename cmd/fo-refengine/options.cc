#include "options.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/config/variables.h"
#include "cli/options.h"
#include "gms/protocol/endpoint.h"

namespace fo::refengine_tool {
namespace {

using Command = Options::Command;

void declare_serve(CLI::App& app, Options& options) {
  CLI::App* sub =
      cli::add_command(app, options.command, Command::kServe, "serve", "run the engine");
  refengine::EngineOptions& serve = options.serve;
  sub->add_option("--model", serve.model, "folder with the model's config.json")
      ->required()
      ->type_name("DIR");
  cli::add_endpoint(*sub, options.endpoint, cli::DeviceOfSocket::kWhereToMap);
  cli::add_number(*sub, "--ranks", options.ranks, "split the layers over devices N, N+1 ...", 1, 64)
      ->type_name("COUNT");
  cli::add_size(*sub, "--kv-bytes", serve.kv_bytes, "device memory for each rank's KV cache");
  cli::add_driver(*sub, serve.driver);
  sub->add_option("--host", serve.host, "numeric address to listen on")
      ->capture_default_str()
      ->type_name("HOST");
  sub->add_option("--port", serve.port, "port to listen on; 0: any")
      ->capture_default_str()
      ->type_name("PORT");
  cli::add_duration(*sub, "--load-timeout", serve.load_timeout, "limit for the weights at start");
  cli::add_remap_timeout(*sub, "--remap-timeout", serve.remap_timeout,
                         "limit for the reader's lock at wake");
  cli::add_duration(*sub, "--kv-retry", serve.kv_retry, "limit for a full device to free memory");
  sub->add_flag("--start-asleep", serve.start_asleep, "wait for /wake_up, without a KV cache");
  sub->add_flag("--exit-on-gms-loss", serve.exit_on_gms_loss,
                "exit with 69 if the GMS is lost while awake");
  sub->add_option("--allow-kv-from", serve.kv_sources,
                  "move KV caches; pull them from these engines")
      ->type_name("NETWORK,...");
  cli::add_size(*sub, "--kv-snapshots", serve.kv_snapshot_bytes,
                "host memory for pulled KV caches");
  cli::add_status_fd(*sub, serve.status_fd);
  cli::add_variables(
      *sub, {"CUDA_VISIBLE_DEVICES", "GMS_SIM_*", "NOTIFY_SOCKET", "TMPDIR", "WATCHDOG_*"});
}

void declare_make_model(CLI::App& app, Options& options) {
  CLI::App* sub = cli::add_command(app, options.command, Command::kMakeModel, "make-model",
                                   "write a model with random weights");
  refengine::MakeModelOptions& model = options.make_model;
  sub->add_option("DIR", options.model_dir, "the folder to create")->required()->type_name("DIR");
  cli::add_number(*sub, "--layers", model.layers, "decoder layers");
  cli::add_number(*sub, "--hidden", model.hidden, "width of a hidden state");
  cli::add_number(*sub, "--heads", model.heads, "attention heads");
  cli::add_number(*sub, "--kv-heads", model.kv_heads, "key and value heads");
  cli::add_number(*sub, "--vocab", model.vocab, "tokens; from 258 on with begin and end of text");
  cli::add_number(*sub, "--intermediate", model.intermediate,
                  "width of the MLP (default: 8/3 of --hidden)")
      ->default_str("");
  cli::add_number(*sub, "--max-positions", model.max_positions,
                  "longest prompt and answer together");
  using enum refengine::DType;
  cli::add_choice(*sub, "--dtype", model.dtype, {{"f32", kF32}, {"f16", kF16}, {"bf16", kBf16}},
                  "type of the weights: f32, f16 or bf16", "TYPE")
      ->transform(CLI::ignore_case);
  cli::add_number(*sub, "--seed", model.seed, "seed of the random weights");
  cli::add_size(*sub, "--shard-size", model.shard_size, "start a new file above this size");
}

void declare_rank(CLI::App& app, Options& options) {
  CLI::App* sub = cli::add_command(app, options.command, Command::kRank, "rank",
                                   "one rank's process, started by serve");
  sub->group("");
  sub->add_option("RANK", options.rank)->required();
}

}  // namespace

void declare(CLI::App& app, Options& options) {
  app.require_subcommand(1);
  declare_serve(app, options);
  declare_make_model(app, options);
  declare_rank(app, options);
}

refengine::EngineOptions to_engine_options(const Options& options) {
  refengine::EngineOptions engine = options.serve;
  const cli::EndpointOptions& endpoint = options.endpoint;
  if (!endpoint.socket.empty() && options.ranks > 1) {
    throw base::Error(base::ExitStatus::kUsage,
                      "--socket names one GMS: several ranks need --socket-dir");
  }
  for (std::uint32_t rank = 0; rank < options.ranks; ++rank) {
    const base::DeviceOrdinal device(endpoint.device.value() + static_cast<int>(rank));
    engine.ranks.push_back(
        {gms::resolve_socket(endpoint.socket, endpoint.socket_dir, device, endpoint.tag), device,
         endpoint.server_uid});
  }
  if (engine.driver.empty()) engine.driver = "auto";
  return engine;
}

}  // namespace fo::refengine_tool
